package compute_test

import (
	"strings"
	"testing"

	"berth/compute"
)

// TestBadName takes names in any language, and none that is blank, moves the cursor or turns text
// around.
func TestBadName(t *testing.T) {
	for _, good := range []string{"ci", "Müller & Söhne", "Δίκτυο", "שלום", "نیم\u200cفاصله", "日本語", "👩\u200d🔬", "a b", "\u0915\u094d"} {
		if why := compute.BadName(good); why != "" {
			t.Errorf("%q is refused: %s", good, why)
		}
	}
	for _, blank := range []string{
		"", " ", "\u00a0", "\u2003 ", "\u200b", "\u2060\ufeff", "\u00ad", "\u3164", "\u115f", "\u2800", "\ufe0f", "\u180e", "\u200d",
	} {
		if why := compute.BadName(blank); !strings.Contains(why, "blank") {
			t.Errorf("%+q is a name: %q", blank, why)
		}
	}
	for _, odd := range []string{
		"a\x1b[2J", "a\nb", "a\rb", "a\tb", "a\x00", "a\x7f", "a\u0085", "a\u009b2J", "a\u2028b", "a\u2029b",
		"ab\u202egnp", "a\u202ab\u202c", "a\u2066b\u2069", "a\u200fb", "a\u061cb",
	} {
		if why := compute.BadName(odd); !strings.Contains(why, "control characters") {
			t.Errorf("%+q is a name: %q", odd, why)
		}
	}
}

// TestPrintable shows what a terminal would obey, and leaves the rest as it is.
func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"Δίκτυο 👩\u200d🔬":             "Δίκτυο 👩\u200d🔬",
		"a\x1b[2J\r\n\x7f":            `a\u001b[2J\u000d\u000a\u007f`,
		"\u009b2J\u202eb\u2066\u2028": `\u009b2J\u202eb\u2066\u2028`,
		`\u202e`:                      `\u202e`,
	} {
		if got := compute.Printable(text); got != want {
			t.Errorf("%+q is shown as %+q, want %+q", text, got, want)
		}
	}
}
