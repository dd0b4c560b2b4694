package requirements_test

import (
	"strings"
	"testing"

	"berth/compute/requirements"
)

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		line int // Line of the fault; 0 for none.
		say  string
	}{
		"empty":           {"", 0, ""},
		"usual":           {"numpy==2.1.0\n# comment\n\nscipy >= 1.2, < 2  # why\ntorch~=2.4.0 ; python_version < '3.13'\nrequests[security,socks]\n", 0, ""},
		"local version":   {"torch==2.4.0+cu121", 0, ""},
		"windows":         {"numpy\r\nscipy\r\n", 0, ""},
		"parentheses":     {"six (>=1.0,<2)", 0, ""},
		"hashes":          {"six==1.0 \\\n    --hash=sha256:00ff \\\n    --hash=sha256:11ee\n", 0, ""},
		"marker of a URL": {"six ; extra == 'a@b'", 0, ""},
		"editable":        {"numpy\n-e .", 2, "editable"},
		"editable, long":  {"--editable=git+https://x/y", 1, "editable"},
		"index":           {"--index-url https://evil\nnumpy", 1, "option"},
		"extra index":     {"numpy\n\n  --extra-index-url=https://evil", 3, "option"},
		"links":           {"-f https://evil", 1, "option"},
		"other file":      {"-r /etc/shadow", 1, "option"},
		"constraints":     {"-c other.txt", 1, "option"},
		"trusted host":    {"--trusted-host evil", 1, "option"},
		"option behind":   {"numpy --config-settings=x=y", 1, "not a requirement"},
		"continued":       {"numpy \\\n--index-url https://evil", 1, "URL"},
		"repository":      {"git+https://github.com/x/y", 1, "repository"},
		"ssh":             {"x @ git+ssh://git@host/x", 1, "repository"},
		"URL":             {"x @ https://host/x.whl", 1, "URL"},
		"bare URL":        {"https://host/x.whl", 1, "URL"},
		"file":            {"file:///etc/passwd", 1, "URL"},
		"at":              {"x@file", 1, "URL"},
		"path":            {"./x", 1, "path"},
		"absolute":        {"/etc/x", 1, "path"},
		"wheel":           {"x-1-py3-none-any.whl", 1, "path"},
		"variable":        {"${HOME}", 1, "not a requirement"},
		"shell":           {"x; y\n$(id)", 2, "not a requirement"},
		"cut":             {"numpy \\", 1, "ends within"},
		"many":            {strings.Repeat("x\n", requirements.Max+1), requirements.Max + 1, "more than"},
	} {
		faults := requirements.Check(test.text)
		switch {
		case test.line == 0 && len(faults) > 0:
			t.Errorf("%s: %+v", name, faults)
		case test.line > 0 && (len(faults) != 1 || faults[0].Line != test.line || !strings.Contains(faults[0].Why, test.say)):
			t.Errorf("%s: %+v, want line %d %q", name, faults, test.line, test.say)
		}
	}
}
