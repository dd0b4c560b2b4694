package attempt

import (
	"time"

	"berth/compute"
)

const (
	// Lease is how long an attempt that may start elsewhere runs without contact
	// with the leader. Other attempts get at least as much. On a healthy node a
	// contact is up to five seconds old when a supervisor learns of it, and twice
	// that when one message was lost.
	Lease = 15 * time.Second

	// Margin is how much longer than the supervisor the leader waits: for
	// clocks that drift, and for a machine that was paused.
	Margin = 10 * time.Second

	// NodeTTL is how long a node that is not heard counts as up.
	NodeTTL = Lease

	// SelectionRetries is how often each run of a GPU selection starts again
	// after a failure of ours, unless more was asked for: the selection is ours to
	// finish, and its runs are made to be repeated.
	SelectionRetries = 2
)

// Moves reports whether a live attempt of e may be replaced by one on another
// node when its own is lost.
func Moves(e *compute.Execution) bool { return e.Retries < e.MaxRetries }

// LeaseOf returns for how long a live attempt of e goes on without contact with
// the leader: its supervisor ends it then. It is the same for the whole life of
// the attempt.
func LeaseOf(e *compute.Execution) time.Duration {
	if Moves(e) {
		return Lease
	}
	return max(e.DisconnectGrace, Lease)
}

// LostAfter returns for how long a node must have been silent before the leader
// gives up a live attempt of e there.
func LostAfter(e *compute.Execution) time.Duration { return LeaseOf(e) + Margin }

// Lost returns which of a node's live attempts have ended for certain, when the
// leader has not heard the node for so long.
func Lost(work []compute.Work, silent time.Duration) []compute.Work {
	var lost []compute.Work
	for _, w := range work {
		if silent > LostAfter(w.Execution) {
			lost = append(lost, w)
		}
	}
	return lost
}

// Silence is how long a leader has not heard a node, as far as it knows.
type Silence struct {
	For   time.Duration
	Heard bool // Since its term began.
}

// State returns the state of a node whose record says that it was in another one.
// Silence alone takes a node down, and only that it was heard brings it back: a new
// leader, which has heard nobody yet, leaves those down that are.
func (s Silence) State(was compute.NodeState) compute.NodeState {
	switch {
	case s.For > NodeTTL:
		return compute.NodeDown
	case s.Heard:
		return compute.NodeUp
	default:
		return was
	}
}
