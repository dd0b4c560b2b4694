package compute

// Plan is the set of changes that the scheduler proposes, computed from one
// view.
type Plan struct {
	Assignments []Assignment `cbor:"1,keyasint,omitempty"` // In the order of the queue.
	Waiting     []Waiting    `cbor:"2,keyasint,omitempty"` // Only executions whose reason changed.
	Preemptions []Preemption `cbor:"3,keyasint,omitempty"`
}

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool { return len(p.Assignments)+len(p.Waiting)+len(p.Preemptions) == 0 }

// Assignment places one execution on one node. GPUs is empty for a CPU-only
// execution.
type Assignment struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Node      NodeID      `cbor:"2,keyasint"`
	GPUs      []GPUShare  `cbor:"3,keyasint,omitempty"`
	Choice    Choice      `cbor:"4,keyasint,omitzero"`
}

// Choice is why an execution was placed on its node: the score there and the
// second best node. Lower is better. It records the decision; the scores of all
// nodes are recomputed from the view on request.
type Choice struct {
	Score         int64  `cbor:"1,keyasint,omitempty"`
	RunnerUp      NodeID `cbor:"2,keyasint,omitempty"` // Zero when no other node fitted.
	RunnerUpScore int64  `cbor:"3,keyasint,omitempty"`
}

// Placement is the stored part of the decision behind an attempt. Its encoding
// has at most MaxPlacement bytes.
type Placement struct {
	ViewIndex uint64 `cbor:"1,keyasint,omitempty"` // Raft index of the view from which the plan was computed.
	Choice    Choice `cbor:"2,keyasint,omitzero"`
}

// MaxPlacement is the largest encoding of a Placement in bytes, including the
// index of the plan's entry.
const MaxPlacement = 64

// Waiting is the reason for which one execution waits.
type Waiting struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Reason    Reason      `cbor:"2,keyasint"`
}

// Preemption preempts one attempt for an execution of a higher priority.
type Preemption struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64      `cbor:"2,keyasint"`
	For       ExecutionID `cbor:"3,keyasint"`
}
