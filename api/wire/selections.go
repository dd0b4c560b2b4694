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
	Repeats        int                 `json:"repeats" doc:"Runs of each GPU type, one after the other."`
	Deadline       *int                `json:"deadline_seconds" doc:"As asked for; null for none."`
	EarlyStop      bool                `json:"early_stop" doc:"Whether runs that can no longer win are stopped."`
	Pareto         []string            `json:"pareto" doc:"Hardware profiles than which no other one is both faster and cheaper."`
	Rows           []SelectionRow      `json:"rows" doc:"By GPU type."`
	Recommendation *string             `json:"recommendation" doc:"Hardware profile; null while there is none."`
	Reason         *string             `json:"reason" doc:"Why that one, in a sentence."`
	Confidence     *float64            `json:"confidence" doc:"Probability, 0 to 1, that the recommended type is really the best for the objective; null until all have ended, and when there is none to compare it with."`
}

// SelectionRow is the result of one GPU type. With repeats the figures are
// those of its runs together, and runs has each.
type SelectionRow struct {
	ExecutionID     compute.ExecutionID `json:"execution_id" doc:"The execution of its first run."`
	HardwareProfile string              `json:"hardware_profile"`
	GPUType         string              `json:"gpu_type"`
	Status          compute.Status      `json:"status" doc:"Completed when all runs have ended and one of them completed."`
	StatusDetails   *string             `json:"status_details" doc:"Such as stopped_early, no_capacity or deadline_passed."`
	Detail          *string             `json:"detail" doc:"The same for people: why it was stopped early, or failed."`
	StoppedEarly    bool                `json:"stopped_early" doc:"It, or a repeat of it, was stopped or spared because it could not win."`
	Node            *string             `json:"node" doc:"Name of the node of its first run."`
	Duration        *float64            `json:"duration_s" doc:"Seconds that the user's process took, the median of the completed runs; null before its end."`
	Credits         *compute.Credits    `json:"credits" doc:"Credits of one run, the median of the completed ones; null until settled."`
	CreditsSpent    compute.Credits     `json:"credits_spent" doc:"Credits of all its runs so far."`
	Predicted       *float64            `json:"predicted_s" doc:"Seconds that a run that was stopped early would have taken at least."`
	Expected        *float64            `json:"expected_s" doc:"Seconds that the run that executes will take at its speed so far, by its progress; null without."`
	ExpectedCredits *compute.Credits    `json:"expected_credits" doc:"Expected cost of the run that executes."`
	GPUUtilPercent  *int                `json:"gpu_utilization_percent" doc:"Mean over its first run; null if not measured: drivers do not report it for a MIG slice."`
	GPUMemoryMiB    *int64              `json:"gpu_memory_mib" doc:"Peak; null if not measured."`
	PeakMemoryMiB   *int64              `json:"peak_memory_mib" doc:"Peak use of the node's memory."`
	PowerWatt       *float64            `json:"power_watt" doc:"Mean; null if the device reports none, as for a MIG slice."`
	EnergyJoule     *float64            `json:"energy_joule" doc:"By the device's counter, else power by time; null where the device reports neither or was not watched all the time."`
	Simulated       bool                `json:"simulated" doc:"The device, and with it power, energy and GPU memory, is simulated."`
	Samples         []GPUSample         `json:"samples" doc:"Measurements of its first run's GPU, at most 16, evenly in time."`
	Score           *float64            `json:"score" doc:"The objective's value, lower is better; null unless completed."`
	ReturnCode      *int                `json:"return_code"`
	OutputTail      *string             `json:"output_tail" doc:"The end of what its first run printed, at most 2 KiB; null while it runs, and when it cannot be read."`
	Pareto          bool                `json:"pareto"`
	Progress        *float64            `json:"progress" doc:"From 0 to 1, where the code prints lines such as BERTH_PROGRESS 37/100; of the run that executes."`
	Runs            []SelectionRun      `json:"runs" doc:"Each run, the first first."`
}

// SelectionRun is one run of the code on one GPU type.
type SelectionRun struct {
	ExecutionID   compute.ExecutionID `json:"execution_id"`
	Status        compute.Status      `json:"status"`
	StatusDetails *string             `json:"status_details"`
	Detail        *string             `json:"detail"`
	Node          *string             `json:"node"`
	Duration      *float64            `json:"duration_s"`
	Credits       *compute.Credits    `json:"credits"`
	EnergyJoule   *float64            `json:"energy_joule"`
	ReturnCode    *int                `json:"return_code"`
}

// GPUSample is one sample of the GPU of a run.
type GPUSample struct {
	At          float64 `json:"at_s" doc:"Seconds since the code started."`
	UtilPercent *int    `json:"gpu_utilization_percent"`
	MemoryMiB   *int64  `json:"gpu_memory_mib"`
	PowerWatt   *int    `json:"power_watt"`
}

// SelectionQuery are the parameters of GET /execution/gpu_selection/{id}.
type SelectionQuery struct {
	Format string `json:"format" default:"\"json\"" enum:"json,csv,svg" doc:"json; csv, a line per GPU type; svg, a chart of seconds and credits."`
	Wait   string `json:"wait" maxlen:"16" doc:"As for GET /execution/{id}."`
	Until  string `json:"until" default:"\"change\"" enum:"change,end" doc:"As for GET /execution/{id}."`
}
