//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// ExplainQuery are the parameters of GET /execution/{id}/explain.
type ExplainQuery struct {
	Defrag bool `json:"defrag" default:"false" doc:"Also look for the cheapest moves that would let it start now."`
}

// Explanation answers GET /execution/{id}/explain.
type Explanation struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Name        *string             `json:"name"`
	Status      compute.Status      `json:"status"`
	Reason      *string             `json:"reason" doc:"Typed reason why it waits, or why it ended so."`
	Detail      *string             `json:"detail" doc:"The same for people; null without one."`
	Retries     int                 `json:"retries" doc:"Retries after system failures so far."`
	MaxRetries  int                 `json:"max_retries" doc:"How often it may."`
	Index       uint64              `json:"index" doc:"Raft index of the state that this is about."`

	Position    *int   `json:"position" doc:"Position in the queue, from 1; null when it waits for no placement."`
	Queued      int    `json:"queued" doc:"Executions in the queue."`
	Nodes       int    `json:"nodes" doc:"Known nodes."`
	NodesFit    int    `json:"nodes_fit" doc:"Nodes that could host it now; executions ahead of it go first."`
	Refused     Counts `json:"refused" doc:"The other nodes, by typed reason."`
	Concurrency *Share `json:"concurrency" doc:"Live attempts of the organization against its limit; null without a limit."`

	Ahead           *Ahead           `json:"ahead" doc:"Executions ahead of it; null when it waits for no placement."`
	Estimate        *Estimate        `json:"estimate" doc:"When it may start; null while nothing can be said."`
	Brake           *BrakeHold       `json:"brake" doc:"Why its attempt is not given up although its node is down; null while that is not so."`
	Placement       *Placement       `json:"placement" doc:"Why its newest attempt is where it is; null before the first."`
	Replicas        []ServiceReplica `json:"replicas" doc:"A row for each replica of a service, with when one that has ended starts again."`
	EngineOutput    []string         `json:"engine_output,omitempty" doc:"The last lines of the engine of a deployment that has failed."`
	Defragmentation *Quote           `json:"defragmentation" doc:"The cheapest moves that would let it start now; null when not asked for, or there are none."`
}

// BrakeHold is that too many nodes have vanished at once for an attempt on one
// of those that are down to be given up.
type BrakeHold struct {
	Node     string          `json:"node" doc:"The attempt's."`
	DownAt   compute.Instant `json:"down_at" doc:"When that was recorded as down."`
	Since    compute.Instant `json:"since" doc:"When the first of the nodes fell silent."`
	Vanished int             `json:"vanished" doc:"How many vanished at once."`
	Up       int             `json:"up" doc:"How many nodes are heard."`
}

// Counts are numbers by name.
type Counts map[string]int

// Share is a part of a limit.
type Share struct {
	Used  int `json:"used"`
	Limit int `json:"limit"`
}

// Ahead is the work before an execution in the queue.
type Ahead struct {
	Executions    int                   `json:"executions"`
	GPUs          float64               `json:"gpus"`
	OwnExecutions int                   `json:"own_executions" doc:"Those of the own organization."`
	OwnGPUs       float64               `json:"own_gpus"`
	Types         []TypeAhead           `json:"types"`
	Own           []compute.ExecutionID `json:"own" doc:"The first 20 of the own organization."`
}

// TypeAhead is the work ahead on one GPU type.
type TypeAhead struct {
	GPUType    *string `json:"gpu_type" doc:"Null for CPU-only work."`
	Executions int     `json:"executions"`
	GPUs       float64 `json:"gpus"`
}

// Estimate is when an execution may start.
type Estimate struct {
	P50Seconds float64         `json:"p50_s" doc:"Seconds from now; with one half of all it is sooner."`
	P90Seconds float64         `json:"p90_s" doc:"With nine of ten it is sooner."`
	P50At      compute.Instant `json:"p50_at"`
	P90At      compute.Instant `json:"p90_at"`
	Samples    int             `json:"samples" doc:"Finished executions that the run times were taken from; 0: only time limits are known."`
	Calibrated Calibration     `json:"calibration" doc:"How good the estimates have been in this cluster."`
}

// Calibration is how good estimates have been.
type Calibration struct {
	Estimates uint64   `json:"estimates" doc:"Executions that were estimated and have started."`
	P50       *float64 `json:"p50_coverage" doc:"Part of them that started by the p50; null before the first."`
	P90       *float64 `json:"p90_coverage" doc:"Part of them that started by the p90."`
	P50Scale  float64  `json:"p50_scale" doc:"Factor by which estimates are multiplied to make up for it."`
	P90Scale  float64  `json:"p90_scale"`
}

// Placement is why an attempt is on its node.
type Placement struct {
	Attempt       uint64  `json:"attempt"`
	Node          string  `json:"node"`
	Index         uint64  `json:"index" doc:"Raft index of the plan's entry: berth replay --index takes it."`
	ViewIndex     uint64  `json:"view_index" doc:"Raft index of the state that the plan was computed from."`
	Score         int64   `json:"score" doc:"Score of the node; lower is better."`
	RunnerUp      *string `json:"runner_up" doc:"The next best node; null when no other one fitted."`
	RunnerUpScore *int64  `json:"runner_up_score"`
}

// Quote is the cheapest way that was found to let an execution start now.
type Quote struct {
	Node  string          `json:"node" doc:"Where it would start."`
	Moves []Move          `json:"moves" doc:"Executions that would start again elsewhere."`
	Price compute.Credits `json:"price" doc:"Loss of the moved executions: the price of the time since they started."`
	Exact bool            `json:"exact" doc:"Whether nothing cheaper exists; else the search met its limit."`
}

// Move is one execution that would start again on another node.
type Move struct {
	ExecutionID *compute.ExecutionID `json:"execution_id" doc:"Null for those of other organizations."`
	From        string               `json:"from"`
	To          string               `json:"to"`
	LostSeconds float64              `json:"lost_s" doc:"How long it has been running."`
	Price       compute.Credits      `json:"price"`
}
