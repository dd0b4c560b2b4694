#!/usr/bin/env bash
# Replays the results that scripts/test.sh collected, for gotestsum. With a test
# and a package it runs that test again, unless its output says that an invariant
# was violated: such a failure is never retried.
#
# Usage: scripts/replay-tests.sh [-test.run=PATTERN PACKAGE]
set -euo pipefail

if [[ $# -eq 0 ]]; then
	cat bin/test/*.json
	exit "$(cat bin/test/status)"
fi
run=$1 package=$2
name=${run#-test.run=^}
name=${name%%\$*}
if grep -h -F "\"Package\":\"$package\"" bin/test/*.json | grep -E "\"Test\":\"${name}[/\"]" | grep -q 'invariant violated'; then
	echo "$package.$name: an invariant was violated, so it is not run again" >&2
	exit 3
fi
if [[ $package == *+gcs ]]; then # As stream_gcs of test.sh tests it.
	# shellcheck disable=SC2086 # One word a flag.
	go test -json $BERTH_TEST_GCS_FLAGS -count=1 "$run" "${package%+gcs}" | sed -E 's/("Package":"[^"]+)"/\1+gcs"/'
	exit
fi
flag=()
[[ ! $package =~ $BERTH_TEST_RACE ]] || flag=(-race)
# shellcheck disable=SC2086 # One word a flag.
exec go test -json "${flag[@]}" $BERTH_TEST_FLAGS -count=1 "$run" "$package"
