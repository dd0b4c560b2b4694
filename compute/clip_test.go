package compute_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"berth/compute"
)

func TestClipKeepsCharactersWhole(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"abcdefgh", "abcdefgh"},
		{"abcdefghi", "abcdefgh"},
		{"abcdefgé", "abcdefg"},
		{"abcdefé", "abcdefé"},
		{"日本語", "日本"},
		{"a\xffb", "a\uFFFDb"},
		{"\xff\xff\xff\xff", "\uFFFD"},
		{strings.Repeat("\x80", 9), "\uFFFD"},
	} {
		got := compute.Clip(test.text, 8)
		if got != test.want || !utf8.ValidString(got) {
			t.Errorf("%q becomes %q, want %q", test.text, got, test.want)
		}
	}
}
