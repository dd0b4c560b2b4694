#!/usr/bin/env bash
# Lints the OpenAPI document with Spectral's recommended rules, and fails where that is
# not possible. With SKIP_OPENAPI_LINT=1 it skips that on a machine without Node.js or
# a registry of npm, and adds a line to the file in SKIPPED. TestOpenAPIRules holds the rules
# that concern the document in any case.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly SPECTRAL=@stoplight/spectral-cli@6.16.3

# cannot REASON REMEDY ends the script: as skipped if that was asked for, else as failed.
cannot() {
	if [[ ${SKIP_OPENAPI_LINT-} == 1 ]]; then
		echo "openapi-lint: SKIPPED: $1"
		[[ -z ${SKIPPED-} ]] || echo "openapi-lint: $1" >>"$SKIPPED"
		exit 0
	fi
	printf 'openapi-lint: %s.\n%s, or set SKIP_OPENAPI_LINT=1 to go on without this check.\n' "$1" "$2" >&2
	exit 1
}

command -v npx >/dev/null || cannot "there is no Node.js with npx here" "Install nodejs and npm (scripts/setup.sh test does)"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go test ./api -count=1 -run '^TestOpenAPIRules$' -args -openapi "$work/openapi.json" >"$work/log" || {
	cat "$work/log"
	exit 1
}
[[ -s $work/openapi.json ]] || {
	echo "openapi-lint: TestOpenAPIRules wrote no document" >&2
	exit 1
}
echo 'extends: ["spectral:oas"]' >"$work/rules.yaml"
if ! npx --yes "$SPECTRAL" --version >"$work/log" 2>&1; then
	tail -5 "$work/log" >&2
	cannot "npm cannot install $SPECTRAL" "Give npm a registry that it reaches (npm config set registry URL)"
fi
npx --yes "$SPECTRAL" lint --fail-severity=hint -r "$work/rules.yaml" "$work/openapi.json"
