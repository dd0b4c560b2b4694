# Reads `go test -v`. Shows a line for each package, all that a failed one
# said, and at the end the sums and every skipped test with its reason.

/^=== (RUN|PAUSE|CONT|NAME)/ { next }

/^ *--- PASS/ { passed++; next }

/^ *--- SKIP/ {
	skipped++
	reason = said
	sub(/^ +/, "", reason)
	skips[skipped] = $3 ": " reason
	next
}

/^ *--- FAIL/ {
	failed++
	failures[failed] = $3
}

/^ok / { print; packages++; forget(); next }
/^\?? *\t?.*\[no test files\]/ { forget(); next }
/^PASS$|^coverage:/ { next }

/^FAIL[ \t]/ {
	for (i = 1; i <= lines; i++) print buffer[i]
	print
	broken++
	forget()
	next
}

{
	if (lines < 5000) buffer[++lines] = $0
	said = $0
}

function forget() {
	lines = 0
	said = ""
}

END {
	for (i = 1; i <= lines; i++) print buffer[i]
	printf "\n%d packages ok, %d failed; %d tests passed, %d failed, %d skipped\n", \
		packages, broken, passed, failed, skipped
	for (i = 1; i <= failed; i++) print "  failed  " failures[i]
	for (i = 1; i <= skipped; i++) print "  skipped " skips[i]
}
