#!/usr/bin/env bash
# Runs the tests of the packages with the race detector and sums them up. The
# whole output is kept in bin/test.log. Usage: scripts/test.sh ./...
set -euo pipefail

export GOFLAGS=${GOFLAGS:--buildvcs=false}
mkdir -p bin
begin=$SECONDS

# Compiling first, on all cores, leaves the tests the whole machine.
echo "compiling, with the race detector and without"
go build -race "$@"
# Tests build the program as it is, and with failpoints: once is enough.
go build -o /dev/null ./cmd/berth
go build -tags faults -o /dev/null ./cmd/berth
echo "compiled in $((SECONDS - begin)) s"

# Packages whose tests start nodes mostly wait: for elections, leases, ends of
# processes. Those that execute something share the machine's cgroups, networks
# and devices, and run one after the other. Beside them run those of peers in
# one process, and then, with what is left of the machine, those that compute.
machine='^berth/(node|node/executor(/.*)?|cmd/berth|bench/faults|bench/faults/sweep|deploy)$'
peers='^berth/cluster$'
packages=$(go list "$@")

# stream NAME N PACKAGE... tests packages, N at a time.
stream() {
	local name=$1 at_once=$2
	shift 2
	[ $# -gt 0 ] || return 0
	go test -race -shuffle=on -timeout 20m -p "$at_once" -v "$@" 2>&1 |
		tee "bin/test-$name.log" | awk -v sums=0 -f scripts/test.awk
}

status=0
rm -f bin/test-*.log
touch bin/test-{machine,peers,rest}.log
# shellcheck disable=SC2046 # One word a package.
(
	stream peers 1 $(grep -E "$peers" <<<"$packages") || status=$?
	renice -n 10 -p "$BASHPID" >/dev/null
	stream rest 2 $(grep -Ev "$machine|$peers" <<<"$packages") || status=$?
	exit "$status"
) &
others=$!
# shellcheck disable=SC2046
stream machine 1 $(grep -E "$machine" <<<"$packages") || status=$?
wait $others || status=$?
cat bin/test-{machine,peers,rest}.log >bin/test.log
awk -v sums=1 -f scripts/test.awk bin/test.log
echo "tests took $((SECONDS - begin)) s in all; the whole output is in bin/test.log"
exit "$status"
