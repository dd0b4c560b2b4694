//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// SelectionStarted answers the start of a GPU selection.
type SelectionStarted struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Status      compute.Status      `json:"status"`
	Message     string              `json:"message"`
}

// Selection is a GPU selection: the parent, and a row per GPU type.
type Selection struct {
	ExecutionID    compute.ExecutionID `json:"execution_id"`
	Status         compute.Status      `json:"status"`
	Parent         ExecutionSummary    `json:"parent"`
	Objective      compute.Objective   `json:"objective"`
	GPUTypes       []string            `json:"gpu_types" doc:"As asked for; empty for every type."`
	MaxCredits     *compute.Credits    `json:"max_credits"`
	Pareto         []string            `json:"pareto" doc:"Hardware profiles than which no other one is both faster and cheaper."`
	Rows           []SelectionRow      `json:"rows" doc:"By GPU type."`
	Recommendation *string             `json:"recommendation" doc:"Hardware profile; null while there is none."`
	Reason         *string             `json:"reason" doc:"Why that one, in a sentence."`
	Confidence     *float64            `json:"confidence" doc:"Null in this version."`
}

// SelectionRow is what one GPU type did.
type SelectionRow struct {
	ExecutionID     compute.ExecutionID `json:"execution_id"`
	HardwareProfile string              `json:"hardware_profile"`
	GPUType         string              `json:"gpu_type"`
	Status          compute.Status      `json:"status"`
	StatusDetails   *string             `json:"status_details"`
	Node            *string             `json:"node" doc:"Name of its node."`
	Duration        *float64            `json:"duration_s" doc:"Seconds that the user's process took; null before its end."`
	Credits         *compute.Credits    `json:"credits" doc:"Null until settled."`
	GPUUtilPercent  *int                `json:"gpu_utilization_percent" doc:"Mean."`
	GPUMemoryMiB    *int64              `json:"gpu_memory_mib" doc:"Peak."`
	PeakMemoryMiB   *int64              `json:"peak_memory_mib"`
	Score           *float64            `json:"score" doc:"The objective's value, lower is better; null unless completed."`
	ReturnCode      *int                `json:"return_code"`
	Pareto          bool                `json:"pareto"`
	Progress        *float64            `json:"progress" doc:"From 0 to 1, where the code prints lines such as BERTH_PROGRESS 37/100."`
}

// SelectionQuery are the parameters of GET /execution/gpu_selection/{id}.
type SelectionQuery struct {
	Format string `json:"format" default:"\"json\"" enum:"json,csv,svg" doc:"Only json in this version."`
	Wait   string `json:"wait" maxlen:"16" doc:"As for GET /execution/{id}."`
}
