package edge

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestGarbageIsCollected counts what large requests leave on the heap.
func TestGarbageIsCollected(t *testing.T) {
	var cycles, live uint64
	collected := 0
	g := &garbage{
		cycles: func() uint64 { return cycles }, live: func() uint64 { return live },
		collect: func() { collected++ },
	}
	const half = maxGarbage / 2
	for i, step := range []struct {
		cycles uint64 // Collections that end before.
		live   uint64
		bytes  int
		want   int // Collections in all.
	}{
		{0, 0, half, 0},
		{0, 0, half, 0},
		{0, 0, 1, 1},
		{0, 0, maxGarbage, 1},
		{1, 0, 1, 2}, // It may have begun before the garbage was left.
		{0, 0, maxGarbage, 2},
		{2, 0, maxGarbage, 2},
		{0, 1 << 30, maxGarbage, 2}, // A large heap is collected less often.
		{0, 1 << 30, 1 << 29, 3},
	} {
		cycles += step.cycles
		live = step.live
		if g.left(step.bytes); collected != step.want {
			t.Errorf("step %d: %d collections, want %d", i, collected, step.want)
		}
	}
}

// TestLargeRequestsAreCounted ends requests with large bodies and answers: they
// count as garbage, and small ones do not.
func TestLargeRequestsAreCounted(t *testing.T) {
	s, err := New(Config{Relay: noRelay{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	g := &s.turns.garbage
	g.cycles = func() uint64 { return 0 }
	const size = 1 << 20
	want := 0
	for _, tt := range []struct {
		name string
		r    *Request
		end  func(*Request)
		left int
	}{
		{"a large body", &Request{raw: make([]byte, size)}, s.leave, largeFactor * size},
		{"a large answer", &Request{large: size}, s.leave, largeFactor * size},
		{"a small body", &Request{raw: make([]byte, largeBody)}, s.leave, 0},
		{"a refused body", &Request{raw: make([]byte, 0, size)}, s.dropBody, 2 * size},
		{"a small refused body", &Request{raw: make([]byte, largeBody)}, s.dropBody, 0},
	} {
		tt.end(tt.r)
		if want += tt.left; g.bytes != want || tt.r.raw != nil {
			t.Errorf("%s: %d bytes are counted in all, want %d", tt.name, g.bytes, want)
		}
	}
}
