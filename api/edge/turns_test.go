package edge

import (
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestLargeRequestsAreCounted ends requests with large bodies and answers: they
// count as garbage, and small ones do not.
func TestLargeRequestsAreCounted(t *testing.T) {
	s, err := New(Config{Relay: noRelay{}, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	s.turns.garbage = func(bytes int) { counted += bytes }
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
		if want += tt.left; counted != want || tt.r.raw != nil {
			t.Errorf("%s: %d bytes are counted in all, want %d", tt.name, counted, want)
		}
	}
}
