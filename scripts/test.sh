#!/usr/bin/env bash
# Runs the tests of the packages with the race detector and sums them up. The
# whole output is kept in bin/test.log. Usage: scripts/test.sh ./...
set -euo pipefail

export GOFLAGS=${GOFLAGS:--buildvcs=false}
log=bin/test.log
mkdir -p bin
begin=$SECONDS

# Compiling first, on all cores, leaves the tests the whole machine: packages
# run one after the other, so that none starves another's heartbeats.
echo "compiling with the race detector"
go build -race "$@"
echo "compiled in $((SECONDS - begin)) s"

status=0
go test -race -shuffle=on -timeout 15m -p 1 -v "$@" 2>&1 |
	tee "$log" | awk -f scripts/test.awk || status=$?
echo "tests took $((SECONDS - begin)) s in all; the whole output is in $log"
exit "$status"
