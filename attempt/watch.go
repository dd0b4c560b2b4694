package attempt

import (
	"time"

	"berth/compute"
)

// Watch measures how long a leader has not heard each node, in steps. A pause of
// the leader itself counts as no more than MaxStep, because messages that arrived
// meanwhile were not read yet. So a silence is never overestimated. A new leader
// makes a new Watch, which gives every node its full time. It is not safe for
// concurrent use.
type Watch struct {
	began bool
	last  time.Duration
	step  time.Duration
	nodes map[compute.NodeID]silence
}

// MaxStep is how much time counts at most between two checks.
const MaxStep = 3 * time.Second

// silence is the measurement of one node by a Watch.
type silence struct {
	heard time.Duration
	since time.Duration // It was last heard so long ago.
}

// NewWatch returns a Watch without measurements.
func NewWatch() *Watch { return &Watch{nodes: make(map[compute.NodeID]silence)} }

// Look begins a check at now, by a monotonic clock of the leader.
func (w *Watch) Look(now time.Duration) {
	w.step = 0
	if w.began {
		w.step = min(max(now-w.last, 0), MaxStep)
	}
	w.began, w.last = true, now
}

// Silent returns the silence of a node that was last heard at a time of the clock
// of Look. Call it once per node and check.
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
