package weights_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"berth/node/inference/weights"
)

// TestTokenStaysWithTheHub has a hub redirect within itself and to another port of its host:
// it gets the token each time, and the other port never does.
func TestTokenStaysWithTheHub(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	note := func(by string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, by+" "+r.Header.Get("Authorization"))
	}
	var hubURL string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("other", r)
		http.Redirect(w, r, hubURL+"/back", http.StatusFound)
	}))
	t.Cleanup(other.Close)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("hub", r)
		switch r.URL.Path {
		case "/back":
			w.WriteHeader(http.StatusNotFound)
		case "/within":
			http.Redirect(w, r, other.URL+"/x", http.StatusFound)
		default:
			http.Redirect(w, r, "/within", http.StatusFound)
		}
	}))
	t.Cleanup(hub.Close)
	hubURL = hub.URL
	h := &weights.Hub{URL: hub.URL, Client: hub.Client()}
	if _, err := h.List(t.Context(), weights.Want{Name: "a/b", Token: "secret"}); err == nil {
		t.Error("a model that the hub does not have is listed")
	}
	mu.Lock()
	defer mu.Unlock()
	want := []string{"hub Bearer secret", "hub Bearer secret", "other ", "hub Bearer secret"}
	if len(seen) != len(want) {
		t.Fatalf("got %q", seen)
	}
	for i := range want {
		if seen[i] != want[i] {
			t.Errorf("request %d: %q, want %q", i+1, seen[i], want[i])
		}
	}
}
