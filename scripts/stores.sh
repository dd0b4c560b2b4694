#!/usr/bin/env bash
# Installs the object stores that the long tests start into bin/stores, and prints what it
# did: Azurite from npm by a lock file, and fake-gcs-server from its Go module. What is
# there already stays. It needs npm, Go, and the Node.js that scripts/engine.sh found.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

target=bin/stores
gcs=github.com/fsouza/fake-gcs-server@v1.56.1
engine_node=bin/engines/llama-node/bin/node # Of the machine, or from npm where that is too old.

want=$(cat scripts/stores/* "${BASH_SOURCE[0]}" | sha256sum | cut -d' ' -f1)
if [[ -e $target/installed && $(<"$target/installed") == "$want" ]]; then
	echo "stores: $target is there"
	exit 0
fi

node=$(command -v node || true)
[[ ! -x $engine_node ]] || node=$engine_node
if [[ -z $node ]]; then
	echo "stores: there is no Node.js (Debian: nodejs)" >&2
	exit 1
fi

# Beside the target, so that a run that is broken off leaves nothing half.
mkdir -p bin
new=$(mktemp -d bin/stores.XXXXXX)
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
echo "stores: installing Azurite into $target"
cp scripts/stores/* "$new"
(cd "$new" && npm ci --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error >/dev/null)
ln -s "$(readlink -f "$node")" "$new/node"
echo "stores: building fake-gcs-server, once"
GOBIN=$PWD/$new go install "$gcs"
echo "$want" >"$new/installed"
rm -rf "$target"
mv "$new" "$target"
trap - EXIT
echo "stores: done"
