package compute

import "time"

// Explanation says why an execution waits, and when it may start.
type Explanation struct {
	Index    uint64 // Raft index of the explained view.
	Reason   Reason // As recorded, or the engine that it lacks where never_fits is.
	Position int    // In the queue, from 1; 0 when it is not queued.
	Queued   int    // Executions in the queue.
	Nodes    int    // Known nodes.
	Fits     int    // Nodes with enough free capacity, before earlier work in the queue is placed.
	Refused  []Refused
	Ahead    Ahead
	Running  int // Live attempts of its organization.
	Limit    int // The limit on them; 0 for none.

	Estimate    *StartEstimate // Nil while there is no estimate.
	Calibration Calibration    // Quality of the past estimates.
	Defragment  *Quote         // Nil when it was not requested, or nothing was found.
}

// Refused counts the nodes that refuse an execution for one reason.
type Refused struct {
	Reason Reason
	Nodes  int
}

// Ahead is the work before an execution in the queue.
type Ahead struct {
	Demand
	Own   Demand        // The part of its own organization.
	Types []TypeAhead   // By GPU type; "" for CPU-only work.
	IDs   []ExecutionID // Executions of its own organization, in order; at most MaxAhead.
}

// MaxAhead limits the executions ahead that are named.
const MaxAhead = 20

// TypeAhead is the work before an execution on one GPU type.
type TypeAhead struct {
	GPUType string
	Demand
}

// Demand is the sum of some executions' requests.
type Demand struct {
	Executions int
	MilliGPU   int64 // Thousandths of a GPU.
}

// Quote is the cheapest way found to start an execution immediately by moving
// others. Each of them restarts somewhere else and loses its work so far.
type Quote struct {
	Node  NodeID // Where the execution would start.
	Moves []Move
	Price Credits // Sum over all moves.
	Exact bool    // Nothing cheaper exists. Otherwise the search reached its limit.
}

// Move is one attempt that would restart on another node.
type Move struct {
	Execution ExecutionID
	Org       OrgID
	From, To  NodeID        // The same when only its GPUs change.
	Lost      time.Duration // Time since it started.
	Price     Credits       // Price of the lost time.
}
