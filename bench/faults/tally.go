package faults

import (
	"slices"
	"sync"
	"time"
)

// tally counts the tries of clients by the fault during which they were made.
type tally struct {
	mu sync.Mutex

	nemesis string // The current fault; "none" between faults.
	counts  map[cell]*Counts
	watches []*watch // Those that have not seen a write.
	writes  []wrote  // Since the end of the previous fault.
}

// cell is a nemesis and a workload.
type cell struct{ nemesis, workload string }

// Counts are the tries of one workload under one nemesis.
type Counts struct {
	Done    int `json:"done"`    // Answered, with effect.
	Refused int `json:"refused"` // Answered, without effect.
	Unknown int `json:"unknown"` // Changes without an answer.
	Unsent  int `json:"unsent"`  // Not received, or reads without an answer.
	// NoSpace counts tries refused for a full disk: no effect, and a retry is
	// allowed.
	NoSpace int `json:"no_space,omitempty"`
}

// Sent returns the number of operations: tries that were answered, or may have
// changed something without an answer.
func (c *Counts) Sent() int { return c.Done + c.Refused + c.Unknown + c.NoSpace }

// watch waits for the first accepted write that was sent after an instant.
type watch struct {
	since    int64 // The start of its timing.
	from, at int64
	seen     chan struct{} // Closed after the first write.
}

// Names of the state without a fault: between faults, and for as long as a
// fault would last.
const (
	noNemesis   = "none"
	calmNemesis = "calm"
)

func newTally() *tally { return &tally{nemesis: noNemesis, counts: map[cell]*Counts{}} }

// begin records the start of a fault. The returned function records its repair.
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

// noSpace returns the number of tries refused for a full disk.
func (t *tally) noSpace() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, c := range t.counts {
		n += c.NoSpace
	}
	return n
}

// idle returns the workloads without a completed operation.
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

// accepted records a write by the times of its call and its acknowledgement.
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

// watch returns a watch for writes sent from now on, timed from an earlier
// instant.
func (t *tally) watch(since, now int64) *watch {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &watch{since: since, from: now, seen: make(chan struct{})}
	t.watches = append(t.watches, w)
	return w
}

// took returns the time until the first accepted write, if there was one.
func (w *watch) took() (time.Duration, bool) {
	select {
	case <-w.seen:
		return time.Duration(w.at - w.since), true
	default:
		return 0, false
	}
}
