#!/usr/bin/env bash
# Lints the OpenAPI document with Spectral's recommended rules. Without Node.js it says
# so and succeeds: TestOpenAPIRules holds those rules that concern the document.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly SPECTRAL=@stoplight/spectral-cli@6.16.3

if ! command -v npx >/dev/null; then
	echo "openapi-lint: skipped, there is no Node.js"
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go test ./api -count=1 -run '^TestOpenAPIRules$' -args -openapi "$work/openapi.json" >"$work/log" || {
	cat "$work/log"
	exit 1
}
echo 'extends: ["spectral:oas"]' >"$work/rules.yaml"
if ! npx --yes "$SPECTRAL" --version >"$work/log" 2>&1; then
	echo "openapi-lint: skipped, $SPECTRAL cannot be had: $(tail -1 "$work/log")"
	exit 0
fi
npx --yes "$SPECTRAL" lint --fail-severity=hint -r "$work/rules.yaml" "$work/openapi.json"
