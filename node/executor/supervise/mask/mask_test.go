package mask_test

import (
	"encoding/base64"
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
