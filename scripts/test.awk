# Reads `go test -v`. With sums=0 it shows a line for each package and all that
# a failed one said; with sums=1 the sums, every skipped test with its reason,
# and every failed one with what its own code said last: what its nodes said
# would hide it.

/^=== (RUN|CONT|NAME)/ { current = $3; next }
/^=== PAUSE/ { next }

/^ *--- PASS/ { passed++; delete words[$3]; next }

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
	reasons[failed] = substr(words[$3], max(1, length(words[$3]) - 1500))
}

/^ +[A-Za-z0-9_]+\.go:[0-9]+: / && current != "" {
	words[current] = words[current] "\n    " $0
}

/^ok / { show($0); packages++; forget(); next }
/^\?? *\t?.*\[no test files\]/ { forget(); next }
/^PASS$|^coverage:/ { next }

/^FAIL[ \t]/ {
	for (i = 1; i <= lines; i++) show(buffer[i])
	show($0)
	broken++
	forget()
	next
}

{
	if (lines < 5000) buffer[++lines] = $0
	said = $0
}

function show(line) {
	if (!sums) {
		print line
		fflush()
	}
}

function forget() {
	lines = 0
	said = ""
}

function max(a, b) { return a > b ? a : b }

END {
	for (i = 1; i <= lines; i++) show(buffer[i])
	if (sums) {
		printf "\n%d packages ok, %d failed; %d tests passed, %d failed, %d skipped\n", \
			packages, broken, passed, failed, skipped
		for (i = 1; i <= failed; i++) print "  failed  " failures[i] reasons[i]
		for (i = 1; i <= skipped; i++) print "  skipped " skips[i]
	}
}
