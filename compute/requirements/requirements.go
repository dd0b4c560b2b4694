// Package requirements checks the packages that users ask for: lines in the
// format of pip.
//
// It is not for installing them: node/executor/packages does that.
//
// Rules: it stands outside package compute because regexp initialises late, and a
// supervisor that imported it would start after the libraries of the node.
package requirements

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Max is how many lines a text of requirements has at most.
const Max = 2000

// requirement is a name with extras, versions and a marker, as PEP 508 has it
// without URLs.
//
//nolint:gochecknoglobals // Immutable.
var requirement = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*` +
		`(\(?\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9._*+!-]+` +
		`(\s*,\s*(===|==|~=|!=|<=|>=|<|>)\s*[A-Za-z0-9._*+!-]+)*\s*\)?)?\s*(;.*)?$`)
})

// hashOption is the one option that a line may have: the digest of its file.
//
//nolint:gochecknoglobals // Immutable.
var hashOption = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\s--hash=sha(256|384|512):[0-9a-fA-F]+`)
})

// Fault says why one line of requirements is refused.
type Fault struct {
	Line int // From 1.
	Why  string
}

// Check returns the lines of a text of requirements that would make an installer do
// things that only an operator may decide: read another index, a URL, a repository or a
// file, or install in place.
func Check(text string) (faults []Fault) {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	if len(lines) > Max {
		return []Fault{{Max + 1, fmt.Sprintf("more than %d lines", Max)}}
	}
	joined, first := "", 0
	for i, line := range lines {
		if joined == "" {
			first = i + 1
		}
		if part, more := strings.CutSuffix(line, `\`); more && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			joined += part + " "
			continue
		}
		if why := badRequirement(joined + line); why != "" {
			faults = append(faults, Fault{first, why})
		}
		joined = ""
	}
	if joined != "" {
		faults = append(faults, Fault{first, "the text ends within a line"})
	}
	return faults
}

// badRequirement says why a line is refused, "" for a good line.
func badRequirement(line string) string {
	if at := strings.Index(" "+line, " #"); at >= 0 {
		line = line[:at]
	}
	line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
	lower := strings.ToLower(line)
	switch {
	case line == "":
		return ""
	case strings.HasPrefix(lower, "-e") || strings.HasPrefix(lower, "--editable"):
		return "an editable requirement: send the package with the code instead"
	case strings.HasPrefix(line, "-"):
		return "an option: indexes, constraints and files of requirements are the operator's to set"
	case slices.ContainsFunc([]string{"git+", "hg+", "svn+", "bzr+"}, func(scheme string) bool {
		return strings.Contains(lower, scheme)
	}):
		return "a repository: only packages of the configured index are installed"
	case strings.Contains(line, "://") || strings.Contains(strings.SplitN(line, ";", 2)[0], "@"):
		return "a URL: only packages of the configured index are installed"
	}
	line = hashOption().ReplaceAllString(line, "")
	name := strings.TrimSpace(strings.SplitN(line, ";", 2)[0])
	if strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") ||
		strings.HasSuffix(strings.ToLower(name), ".whl") {
		return "a path: only packages of the configured index are installed"
	}
	if !requirement().MatchString(line) {
		return "not a requirement such as numpy==2.1.0"
	}
	return ""
}
