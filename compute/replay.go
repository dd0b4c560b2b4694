package compute

// Decision is the scheduler's decision on one execution, with its inputs.
type Decision struct {
	Execution ExecutionID
	Node      NodeID // Zero when it stays in the queue.
	GPUs      []GPUShare
	Choice    Choice
	Reason    Reason      // Why it stays.
	Best      []NodeScore // The best nodes that could take it, best first.
	Refused   []Refused   // The other nodes.
	Applied   bool        // The state made it an attempt.
	Skipped   string      // Why the state did not.
}

// NodeScore is the score of one node; lower is better.
type NodeScore struct {
	Node  NodeID
	Score int64
}

// Replay is one plan, recomputed from the state from which it was computed.
type Replay struct {
	Index     uint64 // Raft index of the plan's entry.
	ViewIndex uint64 // Raft index of the state.
	Term      uint64
	Recorded  Hash // SHA-256 of the plan as it is in the log.
	Computed  Hash // The same of the recomputed plan; equal when every byte is.
	Waiting   int  // Executions whose reason to wait was changed by the plan.
	Decisions []Decision
}

// WhatIf is a question about a hypothetical cluster: the nodes of a state with
// some added, removed or drained.
type WhatIf struct {
	Add    []Node
	Remove []NodeID
	Drain  []NodeID
}

// Forecast is the scheduler's plan for the queue of a WhatIf.
type Forecast struct {
	Index   uint64
	Nodes   int // Nodes in question.
	Lost    int // Live attempts on the nodes that were removed.
	Now     int // Executions that would start without the change too.
	Starts  []Assignment
	Waiting []Waiting
}
