package faults

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/bench/faults/world"
)

// mustServe returns a node whose API is the handler, at a loopback address.
func mustServe(t *testing.T, api http.HandlerFunc) *world.Node {
	t.Helper()
	ip := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
	n := &world.Node{Name: ip, IP: ip}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", strings.TrimPrefix(n.URL(), "http://"))
	if err != nil {
		t.Skip("somebody listens on all addresses: ", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: api}} //nolint:gosec // The server lives briefly.
	server.Start()
	t.Cleanup(server.Close)
	return n
}

// TestClusterTakesWritesAfterwards checks that a cluster that accepts no write
// after the repair is a violation, whatever it accepted before.
func TestClusterTakesWritesAfterwards(t *testing.T) {
	var wedged atomic.Bool
	n := mustServe(t, func(w http.ResponseWriter, _ *http.Request) {
		if wedged.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "{}")
	})
	s := &session{
		cfg: Config{Logger: slog.New(slog.DiscardHandler)}, world: &world.World{Nodes: []*world.Node{n}}, tally: newTally(),
		begun: time.Now(),
	}
	first := s.tally.watch(s.now(), s.now())
	stop := s.probing(t.Context(), first)
	<-first.seen
	stop()
	wedged.Store(true)
	short, cancel := context.WithTimeout(t.Context(), 4*probeEvery)
	defer cancel()
	if err := s.takesWrites(short); err == nil {
		t.Error("a cluster that takes no writes has recovered")
	}
	wedged.Store(false)
	if err := s.takesWrites(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWatch checks which write a watch sees, and the start of its timing.
func TestWatch(t *testing.T) {
	counts := newTally()
	first, next := counts.watch(10, 20), counts.watch(40, 40)
	counts.accepted(15, 30) // The client sent it during the injection.
	if took, seen := first.took(); seen {
		t.Errorf("it saw a write after %d", took)
	}
	counts.accepted(20, 35)
	counts.accepted(21, 50)
	if took, seen := first.took(); !seen || took != 25 {
		t.Errorf("the first write took %d, %v", took, seen)
	}
	if took, seen := next.took(); seen {
		t.Errorf("the next saw a write after %d", took)
	}
	counts.accepted(40, 60)
	if took, seen := next.took(); !seen || took != 20 {
		t.Errorf("the next write took %d, %v", took, seen)
	}
}
