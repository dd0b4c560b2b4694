package wire

import "berth/compute"

// ReplayQuery are the parameters of GET /admin/replay.
type ReplayQuery struct {
	Index uint64 `json:"index" required:"true" min:"1" doc:"Raft index of the plan's entry; explain names it."`
	Top   int    `json:"top" default:"3" min:"1" max:"100" doc:"How many of the best nodes are shown for each execution."`
}

// Replay answers GET /admin/replay.
type Replay struct {
	Index uint64         `json:"index"`
	Plans []ReplayedPlan `json:"plans"`
}

// ReplayedPlan is one plan, computed again.
type ReplayedPlan struct {
	ViewIndex uint64         `json:"view_index" doc:"Raft index of the state that it was computed from."`
	Term      uint64         `json:"term"`
	Same      bool           `json:"same" doc:"Whether the recomputed plan equals the original, byte for byte."`
	Recorded  compute.Digest `json:"recorded_sha256" doc:"SHA-256 of the plan in the log."`
	Computed  compute.Digest `json:"computed_sha256" doc:"SHA-256 of the plan computed now."`
	Waiting   int            `json:"waiting" doc:"Executions whose reason to wait the plan changed."`
	Decisions []Decision     `json:"decisions"`
}

// Decision is how a plan decided about one execution.
type Decision struct {
	ExecutionID   compute.ExecutionID `json:"execution_id"`
	Node          *string             `json:"node" doc:"Null when it stayed in the queue."`
	GPUs          []compute.GPUID     `json:"gpus"`
	Reason        *string             `json:"reason" doc:"Why it stayed."`
	Score         *int64              `json:"score" doc:"Score of the node; lower is better."`
	RunnerUp      *string             `json:"runner_up"`
	RunnerUpScore *int64              `json:"runner_up_score"`
	Best          []NodeScore         `json:"best" doc:"The best nodes for it at that moment, the best first."`
	Refused       Counts              `json:"refused" doc:"The other nodes, by typed reason."`
	Applied       bool                `json:"applied" doc:"Whether the state made an attempt of it."`
	Skipped       *string             `json:"skipped" doc:"Why the state did not."`
}

// NodeScore is how well one node fitted.
type NodeScore struct {
	Node  string `json:"node"`
	Score int64  `json:"score"`
}

// WhatIf is the body of POST /admin/whatif.
type WhatIf struct {
	Index     uint64   `json:"index" default:"0" doc:"The state after this Raft index; 0 for that of now."`
	Add       []string `json:"add" doc:"Nodes, such as \"h100:8 x2\" or \"h100:4,l40s:4\"; cpu:16 is 16 vCPUs."`
	Remove    []string `json:"remove" doc:"Names or identifiers of nodes to leave out, with what executes there."`
	Drain     []string `json:"drain" doc:"Names or identifiers of nodes that take no new work."`
	Execution string   `json:"execution" doc:"Only this execution is answered; the whole queue is still decided."`
}

// WhatIfAnswer answers POST /admin/whatif.
type WhatIfAnswer struct {
	Index     uint64        `json:"index" doc:"Raft index of the state."`
	Nodes     int           `json:"nodes" doc:"Nodes in question."`
	Lost      int           `json:"lost_attempts" doc:"Live attempts on the nodes that were left out."`
	StartsNow int           `json:"starts_unchanged" doc:"Executions that would start without the change."`
	Starts    int           `json:"starts" doc:"Executions that would start with it."`
	Waits     int           `json:"waits" doc:"Executions that would still wait."`
	Started   []WhatIfStart `json:"started" doc:"The first 1,000, in the order of the queue."`
	Waiting   []WhatIfWait  `json:"waiting" doc:"The first 1,000, in the order of the queue."`
}

// WhatIfStart is an execution that would start.
type WhatIfStart struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Node        string              `json:"node" doc:"added-1 and so on for nodes that were added."`
	GPUs        []compute.GPUID     `json:"gpus"`
}

// WhatIfWait is an execution that would still wait.
type WhatIfWait struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Reason      string              `json:"reason"`
}
