#!/usr/bin/env bash
# Refuses words that docs/glossary.md replaces, in comments, help texts and
# documents, and commit subjects that are long or not imperative.
#
# Usage: scripts/words.sh                the tree, and the commits since it has this check
#        scripts/words.sh --subject TEXT one commit subject
set -euo pipefail
cd "$(git rev-parse --show-toplevel)"

# The parent of the first commit whose subject is checked.
readonly FIRST=003114e650e45d430bc11061158e9efdd268e8d0

# Words that have a plain equivalent: again, repair, report, restart, ...
readonly WORDS='anew|mend|mends|mended|mending|lets? off|letting off|has the word|take its turn|(is|are|was|were) told of|(is|are|was|were) told|of before|agenda|shelf|shelves|drawer|hunt(s|ed)?'
# Beginnings of sentences that hide who does what.
readonly STARTS='(What|Who) (is|was|are|were|has|had|does|did|a|an|the|it|they|comes|goes|ends|lost|runs|waits|stands|belongs)'

# subject_fault prints why a commit subject is refused.
subject_fault() {
	local subject=$1 rest=${1#*: }
	[[ ${#subject} -le 72 ]] || echo "over 72 characters"
	[[ ! $rest =~ ^(what|who|whose|of|a|an|the|how|why|where|when)\  ]] || echo "not imperative"
}

if [[ ${1-} == --subject ]]; then
	fault=$(subject_fault "$2")
	[[ -z $fault ]] && exit 0
	echo "commit subject: $fault: $2" >&2
	exit 1
fi

status=0
# Comments and help in Go, comments in scripts, all of a document.
found=$(
	git grep -nEi "//.*\b($WORDS)\b" -- '*.go' || true
	git grep -nEi "(Short|Long|Example):? .*\b($WORDS)\b" -- 'cmd/*.go' || true
	git grep -nE "Short: *[\"\`]$STARTS\b" -- 'cmd/*.go' || true
	git grep -nE "(doc:|Summary: +|Help: +)\"([^\"]*[.:;] )?(What|Who|Of) " -- '*.go' || true
	git grep -nEi "^\s*#.*\b($WORDS)\b" -- '*.sh' Makefile '*.yaml' '*.yml' ':!.golangci.yml' || true
	git grep -nEi "\b($WORDS)\b" -- '*.md' ':!docs/glossary.md' || true
)
# Sentences of comments that hide their noun.
hidden=$(git grep -nE '//(.*[.:;])? (What|Who|Whoever|Of)( |$)' -- '*.go' || true)
if [[ -n $hidden ]]; then
	echo "sentences of comments that begin with What, Who or Of (put the noun first):" >&2
	printf '%s\n' "$hidden" | cut -c1-200 >&2
	status=1
fi
found=$(grep -v '^scripts/words.sh:' <<<"$found" || true)
if [[ -n $found ]]; then
	echo "words that docs/glossary.md replaces:" >&2
	printf '%s\n' "$found" | cut -c1-200 >&2
	status=1
fi
if git cat-file -e "$FIRST" 2>/dev/null; then
	while IFS= read -r subject; do
		fault=$(subject_fault "$subject")
		[[ -z $fault ]] || { echo "commit subject: $fault: $subject" >&2; status=1; }
	done < <(git log --no-merges --format=%s "$FIRST..HEAD")
fi
exit "$status"
