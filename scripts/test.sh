#!/usr/bin/env bash
# Runs the tests of packages and summarizes them: the seconds of each package, every
# failed, skipped and flaky test, and the slowest ones. A test that fails runs
# again, alone, up to twice; one that then passes counts as passed and is listed
# as flaky, also in bin/flaky.txt. Data races and broken invariants are never
# retried. The whole output is in bin/test.json.
#
# Usage: GOTESTSUM=PROGRAM scripts/test.sh [--long] PACKAGE...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Without debugging information linkers take half of their time. Traces of panics do not need it.
export GOFLAGS="${GOFLAGS:--buildvcs=false} -ldflags=-w -gcflags=all=-dwarf=false"
tags=supervisor # As make build has it.
if [[ ${1-} == --long ]]; then
	shift
	tags=long # Without the tag supervisor, supervisors are the tests' own binaries, and so under the race detector.
fi
export BERTH_TEST_FLAGS="-tags=$tags -vet=off -shuffle=on -timeout=40m"

# Google's object store needs the tag gcs, with 20 MB and minutes of compiling. In the long form
# these tests have it: package remote whole, and those of node that move data to a store.
gcs='^$' gcsnode='^$'
[[ $tags != long ]] || gcs='^berth/node/objects/remote$' gcsnode='^berth/node$'
gcsrun='-run=^(TestFilesMoveToAnObjectStore|TestBlobsOutliveAllDisks)$/^gs$'
export BERTH_TEST_GCS_FLAGS="-tags=$tags,gcs ${BERTH_TEST_FLAGS#* }"

# Packages with concurrent goroutines run under the race detector; in the long form
# also those that mostly compute or answer one request after another, and those that
# take minutes to compile for it. It does not cover other processes.
race='api/client|cluster(/.*)?|gpu|node/(inference/meter|logs|mirror|replication|storage)'
[[ $tags != long ]] || race+='|api(/(billing|deployment|edge(/.*)?|execution|submission))?|fsm(/.*)?|node(/(executor(/(inputs|live|prepare))?|leader|worker))?'
export BERTH_TEST_RACE="^berth/($race)\$"

# Tests that execute code share the machine's cgroups, networks and devices, so
# their packages run one after the other, but for those of executors, which have a
# stream of their own. They mostly wait: for elections, leases and the ends of
# processes. Tests with peers or clients in one process run beside them, and tests
# that compute run at lower priority.
benchcmd=
[[ $tags != long ]] || benchcmd='(/benchcmd)?' # Its long tests start clusters.
machine="^berth/(node(/exhaustion)?|node/executor(/.*)?|cmd/berth$benchcmd|bench/faults(/sweep)?|bench/workers)\$"
# Nodes keep apart on one machine by their ids and by slots that are locked, which lets executors be
# tested beside node. Tests that use one engine's pulled images, or networks without a slot, go with node.
shared='^berth/node/executor/(docker|egress)(/|$)'
executors='^berth/node/executor(/|$)'
[[ $tags != long ]] || executors='^$' # There node is raced, and needs the processors.
peers='^berth/(cluster|api|deploy)(/.*)?$'
# In the long form the sweep of all failpoints takes a third of the time, and hardly any
# of the processors: its nodes have networks and disks of their own. It goes beside.
sweep='^$'
[[ $tags != long ]] || sweep='^berth/bench/faults/sweep$'

begin=$SECONDS
out=bin/test
scripts/docker.sh start
trap 'scripts/docker.sh stop' EXIT
rm -rf "$out" bin/test.json bin/flaky.txt
mkdir -p "$out"
: >bin/flaky.txt
packages=$(go list -tags="$tags" -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$@")

# select WHERE PATTERN prints the packages of standard input that match (in) or
# do not match (out) a pattern.
select_packages() {
	case $1 in
	in) grep -E "$2" ;;
	out) grep -Ev "$2" ;;
	esac || true
}

# stream NAME N M R tests the packages of standard input, N at a time: first those
# under the race detector, with R parallel tests of each, then the others, with M.
stream() {
	local name=$1 at_once=$2 parallel=$3 raced=$4 all where flag list failed=0
	all=$(cat)
	for where in in out; do
		list=$(select_packages "$where" "$BERTH_TEST_RACE" <<<"$all")
		[[ -n $list ]] || continue
		flag=(-parallel "$parallel")
		[[ $where == out ]] || flag=(-parallel "$raced" -race)
		# shellcheck disable=SC2086 # One word a flag and a package.
		"$GOTESTSUM" --format pkgname --hide-summary all --jsonfile "$out/$name-$where.json" \
			-- "${flag[@]}" $BERTH_TEST_FLAGS -p "$at_once" $list || failed=1
	done
	return "$failed"
}

# stream_gcs NAME FLAG... tests the packages of standard input with the tag gcs. Their results
# are those of other packages, with +gcs behind the name, because node is tested without it too.
stream_gcs() {
	local file=$out/$1.json list failed=0
	shift
	list=$(cat)
	[[ -n $list ]] || return 0
	# shellcheck disable=SC2086 # One word a flag and a package.
	"$GOTESTSUM" --format pkgname --hide-summary all --jsonfile "$file" \
		-- "$@" $BERTH_TEST_GCS_FLAGS $list || failed=1
	grep -q '"Test":"[^"]*/gs"' "$file" || echo "no test of gs:// was executed" | tee "$out/gcs-none"
	sed -i -E 's/("Package":"[^"]+)"/\1+gcs"/' "$file"
	return "$failed"
}

# compile FLAG... compiles the packages of standard input and their tests, and links nothing: a linked
# test is not kept.
compile() {
	local list
	list=$(cat)
	# shellcheck disable=SC2086 # One word a package.
	[[ -z $list ]] || go list -test -export -f '{{/**/}}' "$@" $list
}

echo "compiling"
# Compile first, on all cores, so that the tests have the whole machine.
all=$(go list -tags="$tags" "$@") # Also those without tests.
select_packages in "$BERTH_TEST_RACE" <<<"$all" | compile -race -tags="$tags" &
raced=$!
select_packages out "$BERTH_TEST_RACE" <<<"$all" | compile -tags="$tags"
wait "$raced"
select_packages in "$gcs|$gcsnode" <<<"$packages" | compile -tags="$tags,gcs"
echo "compiled in $((SECONDS - begin)) s"

status=0
others=()
select_packages in "$peers" <<<"$packages" | stream peers 2 2 2 &
others+=($!)
(
	failed=0
	renice -n 3 -p "$BASHPID" >/dev/null
	select_packages out "$machine|$peers|$gcs" <<<"$packages" | stream rest 2 2 2 || failed=1
	select_packages in "$gcs" <<<"$packages" | stream_gcs gcs || failed=1
	select_packages in "$sweep" <<<"$packages" | stream sweep 1 4 2 || failed=1
	exit "$failed"
) &
others+=($!)
scripts/docker.sh compose & # Only some tests of the machine need it.
compose=$!
# In the long form node is raced, whose tests are clusters and starve beside each other
# under the race detector.
select_packages in '^berth/cmd/' <<<"$packages" | select_packages in "$machine" | stream commands 1 4 2 || status=1
wait "$compose" || status=1
select_packages in "$executors" <<<"$packages" | select_packages out "$shared" | stream executors 1 4 2 &
others+=($!)
{
	select_packages out "^berth/cmd/|$sweep|$executors" <<<"$packages" | select_packages in "$machine"
	select_packages in "$executors" <<<"$packages" | select_packages in "$shared"
} | stream machine 1 4 2 || status=1
select_packages in "$gcsnode" <<<"$packages" | stream_gcs gcs-node "$gcsrun" || status=1
for other in "${others[@]}"; do
	wait "$other" || status=1
done

# Replays the output through another gotestsum, which reruns failed tests alone.
echo "$status" >"$out/status"
status=0
"$GOTESTSUM" --format none --jsonfile bin/test.json --rerun-fails=2 --rerun-fails-run-root-test \
	--rerun-fails-abort-on-data-race --rerun-fails-report bin/flaky.txt \
	--raw-command -- scripts/replay-tests.sh || status=$?

echo
echo "the slowest tests:"
"$GOTESTSUM" tool slowest --num 20 --jsonfile bin/test.json
# The report also lists tests that failed each time; those are not flaky.
sed -i -E '/: ([0-9]+) runs, \1 failures$/d' bin/flaky.txt
if [[ -s bin/flaky.txt ]]; then
	echo
	echo "flaky: they failed and passed alone:"
	cat bin/flaky.txt
fi
echo
[[ ! -e $out/gcs-none ]] || status=1
echo "took $((SECONDS - begin)) s; the whole output is in bin/test.json"
exit "$status"
