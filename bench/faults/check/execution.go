package check

import (
	"github.com/anishathalye/porcupine"

	"berth/compute"
)

// Submit submits an execution; a repeat has the same Idempotency-Key. Its
// output is the id that was answered, a compute.ExecutionID.
type Submit struct{}

// Status asks where an execution stands: its output is a compute.Status, or
// Missing.
type Status struct{ ID compute.ExecutionID }

// Stop asks for the end of an execution. Its output is the compute.Status that
// was answered.
type Stop struct{ ID compute.ExecutionID }

// Missing is the answer that there is no such execution.
type Missing struct{}

// life is the state of the model: one Idempotency-Key, which names at most one
// execution, and how far it was seen to have come.
type life struct {
	id     compute.ExecutionID
	status compute.Status
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
			case Stop:
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
	return true, life{id: id, status: compute.StatusQueued}
}

// see is an answer about the execution with an id.
func (l life) see(id compute.ExecutionID, out any) (bool, any) {
	if out == nil {
		return true, l
	}
	status, there := out.(compute.Status)
	if !there || l.id != id {
		return !there && l.id != id, l // What was submitted must be there.
	}
	if l.status.Terminal() {
		return status == l.status, l
	}
	// Who was sent back to the queue is queued again; nobody becomes pending.
	return status >= compute.StatusQueued, life{l.id, status}
}
