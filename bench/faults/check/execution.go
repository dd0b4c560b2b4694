package check

import (
	"slices"

	"github.com/anishathalye/porcupine"

	"berth/compute"
)

// Submit submits an execution; a repeat has the same Idempotency-Key. Its
// output is the id that was answered, a compute.ExecutionID.
type Submit struct{}

// Status asks where an execution stands: its output is a Standing, or Missing.
type Status struct{ ID compute.ExecutionID }

// Standing is where an execution was said to stand.
type Standing struct {
	Status  compute.Status
	Attempt uint64 // Of its newest attempt; 0 before the first.
	// Anew is how often it has begun anew though its code may have run: its
	// retries, and its attempts that were moved or made room. An execution that
	// has ended need not tell.
	Anew int
}

// Missing is the answer that there is no such execution.
type Missing struct{}

// life is the state of the model: one Idempotency-Key, which names at most one
// execution, and how far it was seen to have come.
type life struct {
	id compute.ExecutionID
	at Standing
}

// executionModel takes what the cluster does by itself (placing, starting,
// ending) as having happened when it is first seen.
func executionModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return life{} },
		Step: func(state, in, out any) (bool, any) {
			l := state.(life)
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

func (l life) submit(out any) (bool, any) {
	id, answered := out.(compute.ExecutionID)
	if !answered {
		return true, l // It is known by its answer alone: until then nothing refers to it.
	}
	if !l.id.IsZero() {
		return l.id == id, l
	}
	return true, life{id: id, at: Standing{Status: compute.StatusQueued}}
}

// see is an answer about the execution with an id.
func (l life) see(id compute.ExecutionID, out any) (bool, any) {
	if out == nil {
		return true, l
	}
	now, there := out.(Standing)
	if !there || l.id != id {
		return !there && l.id != id, l // What was submitted must be there.
	}
	return l.at.before(now), life{l.id, now}
}

// before reports whether who stood at s may stand at now later. The status goes
// forward only: an attempt is placed, its code starts, and then the execution
// has ended or is queued again, behind that attempt and before the next one.
func (s Standing) before(now Standing) bool {
	switch {
	case s.Status.Terminal():
		return now.Status == s.Status && now.Attempt == s.Attempt
	case now.Status.Terminal():
		return now.Attempt >= s.Attempt
	case now.Anew < s.Anew, now.Status == compute.StatusPending, now.Attempt == 0 && now.Status != compute.StatusQueued:
		return false
	}
	// Code that was seen to run begins anew by a retry, or because it was moved.
	if s.Status == compute.StatusRunning && (now.Attempt > s.Attempt || now.Status != s.Status) && now.Anew == s.Anew {
		return false
	}
	return now.Attempt > s.Attempt || now.Attempt == s.Attempt && now.step() >= s.step()
}

// step returns how far the newest attempt has come of an execution that has not
// ended: one that is queued after it waits for the next.
func (s Standing) step() int {
	return slices.Index([]compute.Status{compute.StatusStarting, compute.StatusRunning, compute.StatusQueued}, s.Status)
}
