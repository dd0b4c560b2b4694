package compute

// Decision is how the scheduler decided about one execution, with what it saw.
type Decision struct {
	Execution ExecutionID
	Node      NodeID // Zero when it stays in the queue.
	GPUs      []GPUShare
	Choice    Choice
	Reason    Reason      // Why it stays.
	Best      []NodeScore // The best nodes that took it then, the best first.
	Refused   []Refused   // The other nodes.
	Applied   bool        // The state made an attempt of it.
	Skipped   string      // Why the state did not.
}

// NodeScore is how well one node fitted; lower is better.
type NodeScore struct {
	Node  NodeID
	Score int64
}

// Replay is one plan, computed again from the state that it was computed from.
type Replay struct {
	Index     uint64 // Of the entry.
	ViewIndex uint64 // Of the state.
	Term      uint64
	Recorded  Hash // SHA-256 of the plan as it is in the log.
	Computed  Hash // The same of the plan computed now; equal when every byte is.
	Waiting   int  // Executions whose reason to wait the plan changed.
	Decisions []Decision
}

// WhatIf is a question about a cluster that is not: the nodes of a state with
// some added, removed or drained.
type WhatIf struct {
	Add    []Node
	Remove []NodeID
	Drain  []NodeID
}

// Forecast is what the scheduler would do with the queue then.
type Forecast struct {
	Index   uint64
	Nodes   int // Nodes in question.
	Lost    int // Live attempts on the nodes that were removed.
	Now     int // Executions that would start without the change too.
	Starts  []Assignment
	Waiting []Waiting
}
