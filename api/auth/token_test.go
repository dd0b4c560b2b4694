package auth_test

import (
	"crypto/rand"
	"strings"
	"testing"

	"berth/api/auth"
	"berth/compute"
)

func TestRefreshChain(t *testing.T) {
	first, err := auth.NewRefreshToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("the cluster's refresh key")
	seen := map[string]bool{}
	for token := first; len(seen) < 100; {
		if seen[token] || len(token) != 43 {
			t.Fatalf("token %d is %q", len(seen), token)
		}
		seen[token] = true
		next, err := auth.NextRefreshToken(key, token)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := auth.NextRefreshToken(key, token); again != next {
			t.Fatal("asking again gives another token")
		}
		if other, _ := auth.NextRefreshToken([]byte("another key"), token); other == next {
			t.Fatal("another key gives the same token")
		}
		token = next
	}
	a, err := auth.HashRefreshToken(first)
	if err != nil || a == (compute.Hash{}) {
		t.Errorf("got %v, %v", a, err)
	}
}

func TestNoRefreshToken(t *testing.T) {
	good, err := auth.NewRefreshToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "x", good + "A", good[1:], good + "=", strings.Repeat("=", 43), strings.Repeat("+", 43),
		good[:42] + "\n", strings.Repeat("A", 42) + "B", // Another spelling of the same 32 bytes as with A.
		strings.Repeat("x", 1<<20),
	} {
		if _, err := auth.HashRefreshToken(text); compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("hash of %.50q: got %v", text, err)
		}
		if _, err := auth.NextRefreshToken([]byte("k"), text); compute.CodeOf(err) != compute.CodeUnauthenticated {
			t.Errorf("next of %.50q: got %v", text, err)
		}
	}
}

func TestStreamToken(t *testing.T) {
	key := []byte("the cluster's stream key")
	one := compute.ExecutionID{UUID: compute.UUID{1}}
	two := compute.ExecutionID{UUID: compute.UUID{2}}
	token := auth.StreamToken(key, one)
	if len(token) != 43 || strings.ContainsAny(token, "+/=&?#%") {
		t.Errorf("%q does not go into a URL as it is", token)
	}
	for _, test := range []struct {
		name string
		key  []byte
		of   compute.ExecutionID
		text string
		want bool
	}{
		{"right", key, one, token, true},
		{"other execution", key, two, token, false},
		{"other key", []byte("another"), one, token, false},
		{"empty", key, one, "", false},
		{"shorter", key, one, token[:42], false},
		{"longer", key, one, token + "A", false},
		{"padded", key, one, token + "=", false},
	} {
		if got := auth.CheckStreamToken(test.key, test.of, test.text); got != test.want {
			t.Errorf("%s: got %t", test.name, got)
		}
	}
}

// TestSealed opens sealed data with the key and the purpose that it was made with only.
func TestSealed(t *testing.T) {
	key := []byte("key")
	text := auth.Sealed(key, "a", []byte("data"))
	if got, ok := auth.Unsealed(key, "a", text); !ok || string(got) != "data" {
		t.Errorf("it has %q, %v", got, ok)
	}
	for name, test := range map[string]struct{ key, purpose, text string }{
		"another key":     {"yek", "a", text},
		"another purpose": {"key", "b", text},
		"changed":         {"key", "a", text[:len(text)-2] + "AA"},
		"cut":             {"key", "a", text[:8]},
		"none":            {"key", "a", ""},
		"a stream token":  {"key", "a", auth.StreamToken(key, compute.ExecutionID{})},
	} {
		if got, ok := auth.Unsealed([]byte(test.key), test.purpose, test.text); ok {
			t.Errorf("%s: it has %q", name, got)
		}
	}
}
