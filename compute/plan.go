package compute

// Plan is what the scheduler wants to change, computed from one view.
type Plan struct {
	Assignments []Assignment `cbor:"1,keyasint,omitempty"` // In the order of the queue.
	Waiting     []Waiting    `cbor:"2,keyasint,omitempty"` // Only executions whose reason changed.
	Preemptions []Preemption `cbor:"3,keyasint,omitempty"`
}

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool { return len(p.Assignments)+len(p.Waiting)+len(p.Preemptions) == 0 }

// Assignment puts one execution on one node. GPUs of a CPU-only execution is
// empty.
type Assignment struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Node      NodeID      `cbor:"2,keyasint"`
	GPUs      []GPUShare  `cbor:"3,keyasint,omitempty"`
	Choice    Choice      `cbor:"4,keyasint,omitzero"`
}

// Choice is why an execution went to its node and not to another: the score
// there and the next best node. Lower is better. It says what was decided; the
// scores of all nodes are computed again from the view when someone asks.
type Choice struct {
	Score         int64  `cbor:"1,keyasint,omitempty"`
	RunnerUp      NodeID `cbor:"2,keyasint,omitempty"` // Zero when no other node fitted.
	RunnerUpScore int64  `cbor:"3,keyasint,omitempty"`
}

// Placement is what the state keeps of the decision behind an attempt. Its
// encoding has at most MaxPlacement bytes.
type Placement struct {
	ViewIndex uint64 `cbor:"1,keyasint,omitempty"` // Of the view that the plan was computed from.
	Choice    Choice `cbor:"2,keyasint,omitzero"`
}

// MaxPlacement is the largest encoding of a Placement in bytes, with the index
// of the plan's entry beside it.
const MaxPlacement = 64

// Waiting says why one execution waits.
type Waiting struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Reason    Reason      `cbor:"2,keyasint"`
}

// Preemption preempts one attempt for an execution of a higher
// priority.
type Preemption struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64      `cbor:"2,keyasint"`
	For       ExecutionID `cbor:"3,keyasint"`
}
