package sweep

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"berth/api/client"
	"berth/compute"
)

// TestRemoveRetries checks that the removal of a node with missing
// copies is retried with pauses, and that the last refusal is the error.
func TestRemoveRetries(t *testing.T) {
	const tries = 100
	var asked atomic.Int32
	var removable atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !removable.Load() {
			w.WriteHeader(http.StatusConflict)
			fmt.Fprint(w, `{"detail": "Wait for n2.", "code": "copies_missing"}`)
		}
	}))
	defer server.Close()
	admin, err := client.New(client.Config{Addrs: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	s := &sweep{submitter: submitter{admin: admin}}
	ctx, cancel := context.WithTimeout(t.Context(), tries*pollEvery)
	defer cancel()
	if err := s.remove(ctx, compute.NodeID{}); client.CodeOf(err) != "copies_missing" {
		t.Errorf("got %v", err)
	}
	if n := asked.Load(); n == 0 || n > tries+1 {
		t.Errorf("it was asked for %d times", n)
	}
	removable.Store(true)
	if err := s.remove(t.Context(), compute.NodeID{}); err != nil {
		t.Errorf("got %v", err)
	}
}
