#!/usr/bin/env bash
# Installs missing packages for the demo or the tests from Debian's archive, and
# prints what it did. Usage: scripts/setup.sh demo|test|test-long
set -euo pipefail

# Requirements of each: COMMAND:PACKAGE, or /FILE:PACKAGE.
demo=(
	gcc:gcc
	/usr/include/stdio.h:libc6-dev
	python3:python3
)
tests=(
	"${demo[@]}"
	ip:iproute2
	nft:nftables
	strace:strace
	curl:curl
	dockerd:docker.io
	iptables:iptables
	mkfs.ext4:e2fsprogs
	busybox:busybox-static
	shellcheck:shellcheck
	promtool:prometheus
	systemd-analyze:systemd
	vagrant:vagrant
	node:nodejs
	npm:npm
)
long=(
	"${tests[@]}"
	qemu-system-x86_64:qemu-system-x86
	rclone:rclone
	s3cmd:s3cmd
	aws:awscli
)

kind=${1-}
case $kind in
demo) wanted=("${demo[@]}") ;;
test) wanted=("${tests[@]}") ;;
test-long) wanted=("${long[@]}") ;;
*)
	echo "usage: $0 demo|test|test-long" >&2
	exit 2
	;;
esac

# others installs what is not Debian's, and loads the kernel module by which storage is mounted.
others() {
	if [[ $kind != demo ]]; then
		[[ -e /dev/fuse ]] || "$(dirname "$0")/as-root.sh" modprobe fuse || echo "set-up: no /dev/fuse here" >&2
		"$(dirname "$0")/engine.sh"
	fi
	if [[ $kind == test-long ]]; then
		"$(dirname "$0")/stores.sh"
	fi
}

missing=()
for want in "${wanted[@]}"; do
	what=${want%%:*}
	if [[ $what == /* && ! -e $what ]] || { [[ $what != /* ]] && ! PATH=$PATH:/usr/sbin:/sbin command -v "$what" >/dev/null; }; then
		missing+=("${want#*:}")
	fi
done
if [[ ${#missing[@]} -eq 0 ]]; then
	others
	echo "set-up: nothing is missing"
	exit 0
fi
if ! command -v apt-get >/dev/null; then
	echo "set-up: no apt-get here; install by hand: ${missing[*]}" >&2
	exit 1
fi

# Packages such as prometheus start a daemon when they are installed. Only their
# tools are needed.
# shellcheck disable=SC2016 # $policy is expanded by the root shell.
quiet_install='
set -eu
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap "rm -f $policy" EXIT
	printf "#!/bin/sh\nexit 101\n" >"$policy"
	chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -o DPkg::Lock::Timeout=600 update -qq
apt-get -o DPkg::Lock::Timeout=600 install -qq -y --no-install-recommends "$@" >/dev/null
'
echo "set-up: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$(dirname "$0")/as-root.sh" sh -c "$quiet_install" set-up "${missing[@]}" >"$log" 2>&1; then
	cat "$log" >&2
	echo "set-up: could not install ${missing[*]}" >&2
	exit 1
fi
others
echo "set-up: done"
