package mask_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"berth/node/executor/supervise/mask"
)

// TestMaskSplitAnywhere splits output at every place: the same is shown.
func TestMaskSplitAnywhere(t *testing.T) {
	secrets := mask.New([]string{"s3cret-value", "s3cret", "abc", "first line of it\nsecond line of it\n", "aaaab"})
	for _, tt := range []struct{ in, want string }{
		{"plain", "plain"},
		{"a s3cret-value b", "a **** b"},
		{"s3crets3cret-", "********-"},
		{"s3cret-valu", "****-valu"},
		{"s3cre", "s3cre"},
		{"abc is too short to hide", "abc is too short to hide"},
		{"> first line of it\n> second line of it", "> ****\n> ****"},
		{"first line of it\nsecond line of it\n!", "****!"},
		{base64.StdEncoding.EncodeToString([]byte("s3cret-value")) + ".", "****."},
		{"aaaaaaab", "aaa****"},
		{"", ""},
	} {
		for i := range len(tt.in) + 1 {
			s := secrets.Stream()
			var got strings.Builder
			for _, part := range []string{tt.in[:i], tt.in[i:]} {
				got.Write(s.Next([]byte(part)))
			}
			got.Write(s.Rest())
			if got.String() != tt.want {
				t.Fatalf("%q split at %d shows %q, want %q", tt.in, i, got.String(), tt.want)
			}
		}
	}
}

func TestMaskNothing(t *testing.T) {
	var none *mask.Secrets
	if got := string(none.Stream().Next([]byte("text"))); got != "text" {
		t.Errorf("got %q", got)
	}
}

// TestManyLines holds that a value of very many lines is hidden whole, and that only so
// many of its lines are hidden by themselves: each costs time for all output.
func TestManyLines(t *testing.T) {
	var value strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&value, "line%08d\n", i)
	}
	s := mask.New([]string{value.String()})
	for text, want := range map[string]string{
		"a " + value.String() + " b": "a **** b", "line00000007": "****", "line00000999": "****", "line00001000": "line00001000",
	} {
		stream := s.Stream()
		if got := string(stream.Next([]byte(text))) + string(stream.Rest()); got != want {
			t.Errorf("%.20q is shown as %.100q", text, got)
		}
	}
}

// TestBase64 holds that a value is hidden in all forms of base64 that programs write.
func TestBase64(t *testing.T) {
	value := "s3cr3t?>value-with-~~-urls"
	long := strings.Repeat("0123456789abcdef~?>", 12)
	s := mask.New([]string{value, long})
	wrap := func(text string, columns int) string {
		var b strings.Builder
		for ; len(text) > columns; text = text[columns:] {
			b.WriteString(text[:columns] + "\n")
		}
		return b.String() + text
	}
	for name, text := range map[string]string{
		"alone":          base64.StdEncoding.EncodeToString([]byte(value)),
		"with a newline": base64.StdEncoding.EncodeToString([]byte(value + "\n")),
		"for URLs":       base64.URLEncoding.EncodeToString([]byte(value)),
		"without =":      base64.RawURLEncoding.EncodeToString([]byte(value)),
		"in a header":    base64.StdEncoding.EncodeToString([]byte("bob:" + value)),
		"in the middle":  base64.StdEncoding.EncodeToString([]byte("ab" + value + "tail")),
		"wrapped at 76":  wrap(base64.StdEncoding.EncodeToString([]byte(long)), 76),
		"wrapped at 64":  wrap(base64.StdEncoding.EncodeToString([]byte(long)), 64),
	} {
		stream := s.Stream()
		got := string(bytes.Clone(stream.Next([]byte(text)))) + string(stream.Rest())
		shown := strings.NewReplacer("****", "", "\n", "").Replace(got)
		if !strings.Contains(got, "****") || len(shown) > 12 {
			t.Errorf("%s: %q is shown as %q", name, text, got)
		}
	}
}

// TestOverlappingSecrets holds that secrets that share bytes are hidden whole, however
// the output is split.
func TestOverlappingSecrets(t *testing.T) {
	s := mask.New([]string{"abcdefgh", "efghijkl", "aaaaa"})
	for text, want := range map[string]string{
		"-abcdefghijkl-": "-****-", "efghijklabcdefgh": "********", "aaaaaaaaaa.": "****.", "abcdefghij": "****ij",
	} {
		for at := range len(text) {
			stream := s.Stream()
			got := string(bytes.Clone(stream.Next([]byte(text[:at]))))
			got += string(bytes.Clone(stream.Next([]byte(text[at:])))) + string(stream.Rest())
			if got != want {
				t.Errorf("%q in two writes at %d: %q, want %q", text, at, got, want)
			}
		}
	}
}
