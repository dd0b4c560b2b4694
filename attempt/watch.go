package attempt

import (
	"time"

	"berth/compute"
)

// Watch counts for how long a leader has not heard each node, in steps of its
// own: time in which the leader itself stood still counts as no more than
// MaxStep, because what nodes sent meanwhile was not read yet. So a silence is
// never counted longer than it is. A new leader makes a new Watch, which gives
// every node its full time. It is not safe for concurrent use.
type Watch struct {
	began bool
	last  time.Duration
	step  time.Duration
	nodes map[compute.NodeID]silence
}

// MaxStep is how much time counts at most between two looks.
const MaxStep = 3 * time.Second

// silence is what a Watch knows of a node.
type silence struct {
	heard time.Duration
	since time.Duration // It was last heard so long ago.
}

// NewWatch returns a Watch that has seen nothing.
func NewWatch() *Watch { return &Watch{nodes: make(map[compute.NodeID]silence)} }

// Look begins a look at now, by a clock of the leader's that never goes back.
func (w *Watch) Look(now time.Duration) {
	w.step = 0
	if w.began {
		w.step = min(max(now-w.last, 0), MaxStep)
	}
	w.began, w.last = true, now
}

// Silent returns for how long a node was not heard that was last heard at, by
// the clock of Look. It is called once for each node in a look.
func (w *Watch) Silent(node compute.NodeID, heard time.Duration) time.Duration {
	known, ok := w.nodes[node]
	switch {
	case !ok:
		known.since = 0
	case heard != known.heard:
		known.since = min(max(w.last-heard, 0), w.step)
	default:
		known.since += w.step
	}
	known.heard = heard
	w.nodes[node] = known
	return known.since
}
