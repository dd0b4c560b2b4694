package limit

import (
	"runtime"
	samples "runtime/metrics"
	"sync"
)

// maxGarbage is how many bytes of garbage of large requests may lie on the heap, and
// garbageShare the part of the heap where that is more: a half.
const (
	maxGarbage   = 32 << 20
	garbageShare = 2
)

// Garbage has the heap collected when large bodies and answers leave much on it.
// Left to itself it grows by as much as is live, reservations included.
type Garbage struct {
	cycles  func() uint64 // Collections so far.
	live    func() uint64 // Bytes of the heap that the last collection found in use.
	collect func()

	mu sync.Mutex

	bytes int    // Left on the heap since so many collections:
	since uint64 // the next one that ends may have begun before.
}

// NewGarbage returns the Garbage of this process.
func NewGarbage() *Garbage { return &Garbage{cycles: gcCycles, live: gcLive, collect: runtime.GC} }

// Add counts bytes that a request leaves on the heap.
func (g *Garbage) Add(bytes int) {
	if g.count(bytes) {
		g.collect()
	}
}

// count counts bytes and reports whether there are too many.
func (g *Garbage) count(bytes int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.cycles()
	if now >= g.since+2 {
		g.bytes, g.since = 0, now
	}
	g.bytes += bytes
	if uint64(g.bytes) <= max(maxGarbage, g.live()/garbageShare) {
		return false
	}
	g.bytes, g.since = 0, now
	return true
}

// gcCycles returns how many garbage collections have ended.
func gcCycles() uint64 { return runtimeMetric("/gc/cycles/total:gc-cycles") }

// gcLive returns the bytes of the heap that the last collection found in use.
func gcLive() uint64 { return runtimeMetric("/gc/heap/live:bytes") }

func runtimeMetric(name string) uint64 {
	sample := []samples.Sample{{Name: name}}
	samples.Read(sample)
	return sample[0].Value.Uint64()
}
