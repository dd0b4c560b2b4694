package attempt

import "berth/compute"

// MaxUnstarted is how many nodes may fail to start the code of one execution
// before that counts as a failure of the execution.
const MaxUnstarted = 3

// Next is the next step of an execution whose attempt has ended.
type Next uint8

// The values of Next.
const (
	Ends      Next = iota // It ends as its attempt did.
	Retried               // It starts again; that is one of its retries.
	Elsewhere             // It starts again, on another node if there is one: its code never started.
	Moved                 // It starts again because its node was drained; that is none of its retries.
)

// Ending is how an attempt ended, as reported by its node or by the leader.
type Ending struct {
	Status  compute.Status
	Reason  compute.Reason
	ByNode  bool // Reported by the node; else the leader gave the attempt up.
	Started bool // Its code may have run.
}

// EndingOf returns the ending in a node's outcome.
func EndingOf(o *compute.Outcome) Ending {
	return Ending{Status: o.Status, Reason: o.Reason, ByNode: true, Started: o.Ran || !o.StartedAt.IsZero()}
}

// GivenUp is the ending of an attempt whose node is lost: its code may have run.
func GivenUp() Ending {
	return Ending{Status: compute.StatusSystemFailure, Reason: compute.ReasonNodeLost, Started: true}
}

// Decide returns the next step of e after its attempt a ended. Only a failure of the
// system leads to another attempt, and never after a request to stop: code that
// failed would fail again. Code that may have run is retried only while retries are
// left. Code that provably never ran is retried without using one, up to
// MaxUnstarted times. An attempt that a drain's deadline ended is retried if either
// rule allows it.
func Decide(e *compute.Execution, a *compute.Attempt, end Ending) Next {
	switch {
	case endedByDrain(e, end) && (MayLeave(e) || end.neverStarted(a)):
		return Moved
	case end.Status != compute.StatusSystemFailure || e.Stop != compute.StopNone:
		return Ends
	case end.neverStarted(a) && len(e.Avoid) < MaxUnstarted:
		return Elsewhere
	case Moves(e):
		return Retried
	}
	return Ends
}

// MayLeave reports whether a live attempt of e may be stopped because its node is
// drained: e is rescheduled on another one.
func MayLeave(e *compute.Execution) bool { return e.Preemptible || Moves(e) }

// endedByDrain reports whether an attempt of e ended because the deadline of its
// node's drain had passed, or through a failure of ours on the way. An attempt that
// somebody else stopped ended by that stop. Code that ended by itself first keeps its end.
func endedByDrain(e *compute.Execution, end Ending) bool {
	if e.Stop != compute.StopGraceful || e.Reason != compute.ReasonDrained {
		return false
	}
	switch end.Status {
	case compute.StatusSystemFailure, compute.StatusAborted, compute.StatusCancelled:
		return true
	default:
		return end.Reason == compute.ReasonSignal
	}
}

// neverStarted reports whether the code of a provably never ran: its node says
// so, and names a cause before the start. A lost supervisor is not such a cause,
// because the code may have started unseen.
func (end Ending) neverStarted(a *compute.Attempt) bool {
	if !end.ByNode || end.Started || a.Started {
		return false
	}
	switch end.Reason {
	case compute.ReasonStartFailed, compute.ReasonInputsLost, compute.ReasonNodeLost,
		compute.ReasonStopped:
		return true
	default:
		return false
	}
}
