package faults

import (
	"slices"
	"sync"
	"time"
)

// tally counts what clients do, by what was broken at the time.
type tally struct {
	mu sync.Mutex

	nemesis string // What is broken now; "none" for nothing.
	counts  map[cell]*Counts
	watches []*watch // Those that have seen nothing.
	writes  []wrote  // Since a fault was over.
}

// cell is a nemesis and a workload.
type cell struct{ nemesis, workload string }

// Counts are the tries of one workload under one nemesis.
type Counts struct {
	Done    int `json:"done"`    // Answered, with the effect.
	Refused int `json:"refused"` // Answered that it has none.
	Unknown int `json:"unknown"` // Changes without an answer.
	Unsent  int `json:"unsent"`  // Nobody received it, or a read without an answer.
	// NoSpace are those that were answered that a disk is full: without effect,
	// to be asked for again.
	NoSpace int `json:"no_space,omitempty"`
}

// Sent returns how many tries were answered, or may have changed something
// without an answer: operations.
func (c *Counts) Sent() int { return c.Done + c.Refused + c.Unknown + c.NoSpace }

// watch waits for the first write that was asked for after an instant and
// accepted.
type watch struct {
	since    int64 // From when on it is timed.
	from, at int64
	seen     chan struct{} // Closed once there was one.
}

// What is not broken: between faults, and as long as a fault would last.
const (
	noNemesis   = "none"
	calmNemesis = "calm"
)

func newTally() *tally { return &tally{nemesis: noNemesis, counts: map[cell]*Counts{}} }

// begin notes that something is broken from now on; the function returned, that
// it is mended.
func (t *tally) begin(nemesis string) func() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nemesis = nemesis
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.nemesis = noNemesis
	}
}

func (t *tally) count(workload string, o outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := cell{t.nemesis, workload}
	c := t.counts[at]
	if c == nil {
		c = &Counts{}
		t.counts[at] = c
	}
	*[outcomes]*int{&c.Done, &c.Refused, &c.Unknown, &c.Unsent, &c.NoSpace}[o]++
}

// noSpace returns how many tries were answered that a disk is full.
func (t *tally) noSpace() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.counts {
		n += c.NoSpace
	}
	return n
}

// idle returns which of the workloads had nothing done in all.
func (t *tally) idle(workloads []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(workloads), func(name string) bool {
		for at, c := range t.counts {
			if at.workload == name && c.Done > 0 {
				return true
			}
		}
		return false
	})
}

// accepted notes a write that was called and acknowledged at two instants.
func (t *tally) accepted(called, answered int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watches = slices.DeleteFunc(t.watches, func(w *watch) bool {
		if called < w.from {
			return false
		}
		w.at = answered
		close(w.seen)
		return true
	})
}

// watch returns a watch for writes from now on, timed from an earlier instant.
func (t *tally) watch(since, now int64) *watch {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &watch{since: since, from: now, seen: make(chan struct{})}
	t.watches = append(t.watches, w)
	return w
}

// took returns how long it was until the first accepted write, once there was
// one.
func (w *watch) took() (time.Duration, bool) {
	select {
	case <-w.seen:
		return time.Duration(w.at - w.since), true
	default:
		return 0, false
	}
}

// quantile returns the value below which the fraction q of the durations are:
// the nearest rank. It is 0 for none.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
