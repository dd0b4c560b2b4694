package compute

import "time"

// Explanation is why an execution waits, and when it may start.
type Explanation struct {
	Index    uint64 // Of the view that it is made from.
	Reason   Reason // As recorded.
	Position int    // In the queue, from 1; 0 when it does not wait for a place.
	Queued   int    // Executions in the queue.
	Nodes    int    // Known nodes.
	Fits     int    // Nodes with capacity for it now: work before it goes first.
	Refused  []Refused
	Ahead    Ahead
	Running  int // Live attempts of its organization.
	Limit    int // How many of them there may be; 0 for any number.

	Estimate    *StartEstimate // Nil while nothing can be said.
	Calibration Calibration    // Of the estimates so far.
	Defragment  *Quote         // Nil when it was not asked for, or nothing was found.
}

// Refused counts the nodes that refuse an execution for one reason.
type Refused struct {
	Reason Reason
	Nodes  int
}

// Ahead is what goes before an execution in the queue.
type Ahead struct {
	Demand
	Own   Demand        // The part of its own organization.
	Types []TypeAhead   // By GPU type; "" for CPU-only work.
	IDs   []ExecutionID // Of its own organization, in order; at most MaxAhead.
}

// MaxAhead is how many executions ahead are named.
const MaxAhead = 20

// TypeAhead is what goes before an execution on one GPU type.
type TypeAhead struct {
	GPUType string
	Demand
}

// Demand is what some executions ask for.
type Demand struct {
	Executions int
	MilliGPU   int64 // Thousandths of a GPU.
}

// Quote is the cheapest way that was found to let an execution start now by
// moving others: each starts again somewhere else and loses what it has done.
type Quote struct {
	Node  NodeID // Where the execution would start.
	Moves []Move
	Price Credits // Of all moves.
	Exact bool    // Nothing cheaper exists; else the search met its limit.
}

// Move is one attempt that would start again on another node.
type Move struct {
	Execution ExecutionID
	Org       OrgID
	From, To  NodeID        // The same when only its GPUs change.
	Lost      time.Duration // Since it started.
	Price     Credits       // Of that time.
}
