package auth_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"berth/api/auth"
	"berth/compute"
)

func mustKey(t testing.TB) auth.APIKey {
	t.Helper()
	k, err := auth.NewAPIKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAPIKey(t *testing.T) {
	form := regexp.MustCompile(`^lk_[0-9A-Za-z]{59}$`)
	seen := map[string]bool{}
	for range 200 {
		k := mustKey(t)
		if !form.MatchString(k.Text) || k.Lookup != k.Text[3:13] || k.Prefix != k.Text[:8] ||
			k.Hash != compute.Hash(sha256.Sum256([]byte(k.Text))) {
			t.Fatalf("got %+v", k)
		}
		if seen[k.Lookup] {
			t.Fatalf("lookup %s twice", k.Lookup)
		}
		seen[k.Lookup] = true
		again, err := auth.ParseAPIKey(k.Text)
		if err != nil || again != k || !again.Matches(k.Hash) || again.Matches(mustKey(t).Hash) {
			t.Errorf("came back as %+v, %v", again, err)
		}
	}
}

// Any one character that is mistyped is found before anything is looked up.
func TestMistypedKey(t *testing.T) {
	k := mustKey(t)
	for i := range k.Text {
		for _, c := range []byte("aZ0") {
			b := []byte(k.Text)
			if b[i] == c {
				continue
			}
			b[i] = c
			if _, err := auth.ParseAPIKey(string(b)); compute.CodeOf(err) != compute.CodeUnauthenticated {
				t.Errorf("character %d as %c: got %v", i, c, err)
			}
		}
	}
	for _, text := range []string{
		"", "lk_", k.Text + "x", k.Text[1:], " " + k.Text, strings.ToUpper(k.Text),
		"lk_" + strings.Repeat("\x00", 59), "lk_" + strings.Repeat("é", 29) + "x", strings.Repeat("x", 1<<20),
	} {
		if _, err := auth.ParseAPIKey(text); compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("%.20q: got %v", text, err)
		}
	}
	if !auth.LooksLikeAPIKey(k.Text) || auth.LooksLikeAPIKey("eyJhbGciOiJFZERTQSJ9.e30.x") {
		t.Error("an API key does not look like one, or an access token does")
	}
}

func TestKeyCharactersAreFair(t *testing.T) {
	counts := map[rune]int{}
	total := 0
	for range 2000 {
		for _, c := range mustKey(t).Text[3:56] {
			counts[c]++
			total++
		}
	}
	mean := total / 62
	for c, n := range counts {
		if n < mean*3/4 || n > mean*5/4 {
			t.Errorf("%c comes %d times, the mean is %d", c, n, mean)
		}
	}
	if len(counts) != 62 {
		t.Errorf("got %d characters, want 62", len(counts))
	}
}

func TestNoRandomnessNoKey(t *testing.T) {
	short := iotest.TimeoutReader(bytes.NewReader(make([]byte, 8)))
	if _, err := auth.NewAPIKey(short); err == nil {
		t.Error("made an API key without randomness")
	}
	if _, err := auth.NewRefreshToken(short); err == nil {
		t.Error("made a refresh token without randomness")
	}
}

func FuzzParseAPIKey(f *testing.F) {
	f.Add("lk_" + strings.Repeat("0", 59))
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := auth.ParseAPIKey(text); err == nil && k.Text != text {
			t.Errorf("%q came back as %q", text, k.Text)
		}
	})
}
