package compute

// Plan is what the scheduler wants to change, computed from one view.
type Plan struct {
	Assignments []Assignment `cbor:"1,keyasint,omitempty"` // In the order of the queue.
	Waiting     []Waiting    `cbor:"2,keyasint,omitempty"` // Only executions whose reason changed.
}

// Empty reports whether the plan changes nothing.
func (p Plan) Empty() bool { return len(p.Assignments) == 0 && len(p.Waiting) == 0 }

// Assignment puts one execution on one node. GPUs of a CPU-only execution is
// empty.
type Assignment struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Node      NodeID      `cbor:"2,keyasint"`
	GPUs      []GPUShare  `cbor:"3,keyasint,omitempty"`
}

// Waiting says why one execution waits.
type Waiting struct {
	Execution ExecutionID `cbor:"1,keyasint"`
	Reason    Reason      `cbor:"2,keyasint"`
}
