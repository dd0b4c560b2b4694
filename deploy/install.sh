#!/usr/bin/env bash
# Makes this machine a node of a Berth cluster. Installs the program, its
# configuration in /etc/berth, its state directory /var/lib/berth, and a systemd
# unit. A second run replaces the program and keeps configuration and state.
set -euo pipefail

usage() {
	cat <<'END'
usage: install.sh [options]

The first machine makes the cluster, and a token with which others may join:
  install.sh --uses 2 --token-out join.token
Bring the file to each other machine:
  install.sh --join 10.0.0.1:6471 --token-file join.token

  --binary FILE      the program (default: bin/berth of this checkout)
  --name NAME        the node's name (default: the machine's)
  --advertise ADDR   address under which the other nodes reach this one
                     (default: the machine's first)
  --api-addr ADDR    where the REST API listens (default 0.0.0.0:6470); it is
                     plain HTTP until api.tls is set in the configuration
  --join HOST:PORT   nodes of the cluster to join, by comma
  --token-file FILE  the join token, which is not kept
  --uses N           make a token good for N machines and one hour
  --token-out FILE   where to put it
  --simulated SPEC   offer simulated GPUs, such as h100:2,l40s:4
  --root DIR         install below DIR and start nothing
END
}

die() {
	echo "install.sh: $*" >&2
	exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$here/../bin/berth
name=$(hostname)
advertise='' api_addr=0.0.0.0:6470 join='' token_file='' uses='' token_out='' simulated='' root=''

while [[ $# -gt 0 ]]; do
	case $1 in
	-h | --help)
		usage
		exit 0
		;;
	--binary | --name | --advertise | --api-addr | --join | --token-file | --uses | --token-out | --simulated | --root)
		[[ $# -ge 2 ]] || die "$1 needs a value"
		option=${1#--}
		printf -v "${option//-/_}" '%s' "$2"
		shift 2
		;;
	*)
		usage >&2
		die "unknown option $1"
		;;
	esac
done

program=$root/usr/local/bin/berth
config=$root/etc/berth/berth.yaml
token=/etc/berth/join.token
state=/var/lib/berth
unit=$root/etc/systemd/system/berth.service

check() {
	[[ -n $root || $(id -u) -eq 0 ]] || die "needs root"
	[[ -n $root || -d /run/systemd/system ]] || die "needs systemd; start 'berth node' in your own way instead"
	[[ -x $binary ]] || die "no program at $binary; make build makes one"
	[[ -z $join || -f $config || -n $token_file ]] || die "--join needs --token-file"
	[[ -z $token_file || -s $token_file ]] || die "no join token in $token_file"
	[[ -z $uses || -n $token_out ]] || die "--uses needs --token-out"
	[[ -z $token_out || -n $uses ]] || die "--token-out needs --uses"
	[[ -z $root || -z $uses ]] || die "--root starts no node that could make a token"
	command -v python3 >/dev/null || echo "install.sh: no python3 here: no Python will execute on this node" >&2
}

# A rename replaces the program, so that a running node continues with the old
# file until it is restarted.
install_program() {
	install -d -m 755 "$(dirname "$program")"
	install -m 755 "$binary" "$program.new"
	mv -f "$program.new" "$program"
}

write_config() {
	install -d -m 755 "$root/etc/berth"
	install -d -m 700 "$root$state"
	if [[ -f $config ]]; then
		echo "keeping $config"
		return
	fi
	{
		echo "# A node of Berth. Every setting: berth node --help. Check: berth config check $config"
		echo "name: $name"
		[[ -z $advertise ]] || echo "advertise: $advertise"
		echo "data_dir: $state"
		echo "api:"
		echo "  addr: \"$api_addr\""
		case $api_addr in
		127.* | localhost:* | '[::1]:'*) ;;
		*) echo "  insecure: true # Tokens are sent in clear text: set tls, or put a proxy with TLS before it." ;;
		esac
		if [[ -n $join ]]; then
			echo "join:"
			echo "  hosts: [${join//,/, }]"
			echo "  token_file: $token"
		fi
		if [[ -n $simulated ]]; then
			echo "gpus:"
			echo "  source: simulated"
			echo "  simulated: [\"${simulated//,/\", \"}\"]"
		fi
		echo "limits:"
		echo "  timeout_max: 168h"
	} >"$config.new"
	"$program" config check "$config.new" || die "the configuration above would not work"
	mv -f "$config.new" "$config"
	echo "wrote $config"
}

# Only the first start needs the token.
install_token() {
	[[ -n $token_file ]] || return 0
	install -m 600 "$token_file" "$root$token"
}

install_unit() {
	install -d -m 755 "$(dirname "$unit")"
	install -m 644 "$here/berth.service" "$unit"
}

# api_setting prints api.$1 or api.tls.$1 of the configuration. An existing
# configuration overrides the options.
api_setting() {
	sed -n "/^api:/,/^[^ #]/s/^ *$1: *[\"']\{0,1\}\([^ \"'#]*\).*/\1/p" "$config" | head -n 1
}

# find_api sets the address of this node's API: that of its listener, or loopback
# if it listens on all addresses.
find_api() {
	local addr
	addr=$(api_setting addr)
	addr=${addr:-127.0.0.1:6470}
	scheme=http port=${addr##*:} host=${addr%:*}
	[[ -z $(api_setting cert) ]] || scheme=https
	case $host in
	'' | 0.0.0.0 | '[::]') host=127.0.0.1 ;;
	esac
}

# status prints the status line of a GET on this node's API, or only the status
# with TLS. The certificate is not verified, because it may be for a name that
# this machine cannot resolve.
status() {
	if [[ $scheme == https ]]; then
		python3 - "$scheme://$host:$port$1" <<-'END'
			import ssl, sys, urllib.request
			trust = ssl.create_default_context()
			trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
			with urllib.request.urlopen(sys.argv[1], context=trust, timeout=5) as answer:
			    print("", answer.status, "")
		END
		return
	fi
	local bare=${host#[}
	exec 3<>"/dev/tcp/${bare%]}/$port" || return 1
	printf 'GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n' "$1" >&3
	head -n 1 <&3
	exec 3>&-
}

start() {
	systemctl daemon-reload
	systemctl enable --quiet berth.service
	systemctl restart berth.service
}

# A node is ready once it is a member of the cluster.
wait_ready() {
	local deadline=$((SECONDS + 120))
	if [[ $scheme == https ]] && ! command -v python3 >/dev/null; then
		echo "the API is served with TLS, and there is no python3 here to ask it: see https://$host:$port/readyz"
		return
	fi
	until [[ $({ status /readyz; } 2>/dev/null) == *' 200 '* ]]; do
		[[ $SECONDS -lt $deadline ]] || die "not ready at $scheme://$host:$port after two minutes; journalctl -u berth says why"
		sleep 1
	done
	rm -f "$token"
	echo "this node is ready"
}

# With TLS the request needs a name in the certificate.
make_token() {
	[[ -n $uses ]] || return 0
	local url
	url=$(api_setting public_url)
	[[ $scheme == https && -n $url ]] || url=$scheme://$host:$port
	rm -f "$token_out"
	"$program" admin token create --addr "$url" --token-file "$state/root_token" \
		--role server --ttl 1h --uses "$uses" --out "$token_out"
}

check
install_program
write_config
install_token
install_unit
if [[ -n $root ]]; then
	echo "installed below $root"
	exit 0
fi
start
find_api
wait_ready
make_token
