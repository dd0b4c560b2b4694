package check

import (
	"slices"

	"github.com/anishathalye/porcupine"

	"berth/compute"
)

// Submit submits an execution; a repeat has the same Idempotency-Key. Its
// output is the id in the answer, a compute.ExecutionID.
type Submit struct{}

// Status reads an execution. Its output is an Observation, or Missing.
type Status struct{ ID compute.ExecutionID }

// Observation is the state of an execution in an answer.
type Observation struct {
	Status  compute.Status
	Attempt uint64 // The newest attempt; 0 before the first.
	// The number of restarts after which code may have run twice: its retries,
	// and its attempts that were moved or preempted. It is optional after the
	// end of an execution.
	Restarts int
}

// Missing is the answer that the execution does not exist.
type Missing struct{}

// execution is the state of the model: one Idempotency-Key, which names at most
// one execution, and the latest known state of that execution.
type execution struct {
	id compute.ExecutionID
	at Observation
}

// executionModel assumes that the cluster's own transitions (place, start, end)
// happen when they are first seen.
func executionModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return execution{} },
		Step: func(state, in, out any) (bool, any) {
			l := state.(execution)
			switch in := in.(type) {
			case Submit:
				return l.submit(out)
			case Status:
				return l.see(in.ID, out)
			}
			return false, l
		},
	}
}

func (l execution) submit(out any) (bool, any) {
	id, answered := out.(compute.ExecutionID)
	if !answered {
		return true, l // Only the answer identifies the execution, so nothing refers to it earlier.
	}
	if !l.id.IsZero() {
		return l.id == id, l
	}
	return true, execution{id: id, at: Observation{Status: compute.StatusQueued}}
}

// see applies an answer about the execution with an id.
func (l execution) see(id compute.ExecutionID, out any) (bool, any) {
	if out == nil {
		return true, l
	}
	now, there := out.(Observation)
	if !there || l.id != id {
		return !there && l.id != id, l // A submitted execution must exist.
	}
	return l.at.before(now), execution{l.id, now}
}

// before reports whether an execution may go from state s to state now. The
// status only advances: an attempt is placed and its code starts. Then the
// execution ends, or is queued after that attempt and before the next one.
func (s Observation) before(now Observation) bool {
	switch {
	case s.Status.Terminal():
		return now.Status == s.Status && now.Attempt == s.Attempt
	case now.Status.Terminal():
		return now.Attempt >= s.Attempt
	case now.Restarts < s.Restarts, now.Status == compute.StatusPending,
		now.Attempt == 0 && now.Status != compute.StatusQueued:
		return false
	}
	// Code that was seen running begins again only after a retry or a move.
	moved := now.Attempt > s.Attempt || now.Status != s.Status
	if s.Status == compute.StatusRunning && moved && now.Restarts == s.Restarts {
		return false
	}
	return now.Attempt > s.Attempt || now.Attempt == s.Attempt && now.step() >= s.step()
}

// step returns the progress of the newest attempt of a live execution. An
// execution queued after that attempt waits for the next one.
func (s Observation) step() int {
	return slices.Index([]compute.Status{compute.StatusStarting, compute.StatusRunning, compute.StatusQueued}, s.Status)
}
