#!/usr/bin/env bash
# Runs the tests in the table of docs/security.md, in their long form, and prints for
# each class of attack how many cases were tried and how many held, and what the
# tests measured. Fails if one did not hold.
#
# Usage: scripts/security.sh [PATTERN]   only the classes that match
# MUTATIONS sets how many mutated requests are sent to the API (default: 1000000).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export GOFLAGS=${GOFLAGS:--buildvcs=false}
out=bin/security
rm -rf "$out"
mkdir -p "$out"
scripts/docker.sh start
trap 'scripts/docker.sh stop' EXIT
scripts/docker.sh compose

# rows prints CLASS|PACKAGE|TEST for each test of the table.
rows() {
	awk -F'|' '/^## /{on = /Classes that are tested/} on && NF == 5 && $4 ~ /`(Test|Fuzz)/ {print $2 "|" $4}' docs/security.md |
		while IFS='|' read -r class tests; do
			class=$(sed -E 's/^ +| +$//g' <<<"$class")
			package=
			# shellcheck disable=SC2016 # Backquotes of Markdown.
			for word in $(grep -oE '`[^`]+`' <<<"$tests" | tr -d '`'); do
				case $word in
				Test* | Fuzz*) echo "$class|$package|$word" ;;
				*) package=$word ;;
				esac
			done
		done
}

rows | grep -iE "${1:-.}" >"$out/rows"
cut -d'|' -f2 "$out/rows" | sort -u | while read -r package; do
	tests=$(awk -F'|' -v p="$package" '$2 == p {print $3}' "$out/rows" | paste -sd'|')
	arguments=()
	[[ $package != api ]] || arguments=(-args -mutations="${MUTATIONS:-1000000}")
	go test -json -count=1 -tags long,supervisor -timeout 40m -run "^($tests)\$" "./$package" "${arguments[@]}" </dev/null >>"$out/results.json" || true
done

# A case is a test without children.
python3 - "$out" <<'EOF'
import collections, json, sys

out = sys.argv[1]
results, measured = {}, collections.defaultdict(list)
for line in open(f"{out}/results.json"):
    try:
        event = json.loads(line)
    except ValueError:
        continue  # Output of the compiler.
    _, found, fact = event.get("Output", "").partition("measured: ")
    if found:
        measured[event["Package"], event.get("Test", "").split("/")[0]].append(fact.strip())
    if event.get("Test") and event["Action"] in ("pass", "fail", "skip"):
        results[event["Package"], event["Test"]] = event["Action"]
parents = {(p, t.rsplit("/", 1)[0]) for p, t in results if "/" in t}
tried, held, skipped = collections.Counter(), collections.Counter(), collections.Counter()
classes, facts = [], collections.defaultdict(list)
for row in open(f"{out}/rows"):
    name, package, test = row.rstrip("\n").split("|")
    if name not in classes:
        classes.append(name)
    cases = [r for (p, t), r in results.items()
             if p == "berth/" + package and (t == test or t.startswith(test + "/")) and (p, t) not in parents]
    facts[name] += measured["berth/" + package, test]
    tried[name] += sum(r != "skip" for r in cases)
    held[name] += sum(r == "pass" for r in cases)
    skipped[name] += sum(r == "skip" for r in cases)
width = max(map(len, classes))
print(f"{'class':{width}}  tried  held  skipped")
for name in classes:
    print(f"{name:{width}}  {tried[name]:5}  {held[name]:4}  {skipped[name]:7}")
for name in classes:
    if facts[name]:
        print("\n" + "\n    ".join([name] + facts[name]))
bad = [name for name in classes if tried[name] == 0 or held[name] < tried[name]]
if bad:
    print("\ndid not hold, or was not tried: " + "; ".join(bad), file=sys.stderr)
sys.exit(bool(bad))
EOF
