#!/usr/bin/env bash
# Runs a command as root, with sudo if needed, because a node creates namespaces
# and control groups for executions.
set -euo pipefail

if [[ $(id -u) -eq 0 ]]; then
	exec "$@"
fi
if ! command -v sudo >/dev/null; then
	echo "$1 needs root: run this as root, or install sudo" >&2
	exit 1
fi
echo "$1 needs root, asking sudo" >&2
exec sudo -E "$@"
