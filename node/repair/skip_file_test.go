package repair

import (
	"fmt"
	"strings"
	"testing"
)

// TestSkipFileIsReadStrictly checks that a server does not guess which entries
// to skip.
func TestSkipFileIsReadStrictly(t *testing.T) {
	a, b := strings.Repeat("a1", 32), strings.Repeat("0b", 32)
	good, err := parseSkips("f", "# why\n7 "+a+"\n9 "+b+"\n")
	if err != nil || len(good) != 2 || good[7][0] != 0xa1 || good[9][31] != 0x0b {
		t.Errorf("got %v, %v", good, err)
	}
	var many strings.Builder
	for i := range 1001 {
		fmt.Fprintf(&many, "%d %s\n", i+1, a)
	}
	for text, want := range map[string]string{
		"7 " + a + "\n\n":                  "f, line 2: \"\" is not an index",
		"# why\nseven " + a:                "f, line 2: \"seven\" is not an index",
		"0 " + a:                           "f, line 1: \"0\" is not an index",
		"-1 " + a:                          "f, line 1: ",
		" 7 " + a:                          "f, line 1: \"\" is not an index",
		"7\t" + a:                          "f, line 1: ",
		"7 " + a[1:]:                       "f, line 1: \"" + a[1:] + "\" is not a SHA-256",
		"7 " + a + " ":                     "is not a SHA-256",
		"7 " + a + "\r\n":                  "is not a SHA-256",
		"7":                                "is not a SHA-256",
		"7 " + a + "\n8 x\n":               "f, line 2: \"x\" is not a SHA-256",
		"7 " + a + "\n8 " + b + "\n7 " + b: "f, line 3: entry 7 is listed twice",
		many.String():                      "f, line 1001: more than 1000",
	} {
		if got, err := parseSkips("f", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80q: got %v, %v; want %q", text, got, err, want)
		}
	}
}
