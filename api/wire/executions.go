//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// Started answers the start of an execution that can be streamed.
type Started struct {
	ExecutionID  compute.ExecutionID `json:"execution_id"`
	Status       compute.Status      `json:"status"`
	StreamingURL string              `json:"streaming_url" doc:"URL of the output as server-sent events. It holds a token of its own."`
	Message      string              `json:"message"`
}

// ExecutionStatus answers /execution/{kind}/{id}/status.
type ExecutionStatus struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Status      compute.Status      `json:"status"`
	Errors      []string            `json:"errors" doc:"Why it did not complete; empty otherwise."`
}

// WorkloadsQuery are the parameters of GET /workloads/list.
type WorkloadsQuery struct {
	Limit  int    `json:"limit" default:"1000" min:"1" max:"1000" doc:"Page size."`
	Cursor string `json:"cursor" maxlen:"36" doc:"The execution_id of the last row of the page before; the first page when absent. A page with fewer rows than limit is the last one."`
}

// Stopped answers a request to end an execution, or to delete it.
type Stopped struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Status      compute.Status      `json:"status" doc:"Its status now; a live one ends a little later."`
	Message     string              `json:"message"`
}

// ExecutionSummary is one execution in lists.
type ExecutionSummary struct {
	ExecutionID       compute.ExecutionID  `json:"execution_id"`
	CreatedAt         compute.Instant      `json:"created_at" doc:"When the submit was committed."`
	ExecutionType     compute.Kind         `json:"execution_type"`
	Status            compute.Status       `json:"status"`
	HardwareProfile   string               `json:"hardware_profile"`
	StatusDetails     *string              `json:"status_details" doc:"Typed reason why it waits, or why it ended so."`
	LocalImports      *string              `json:"local_imports" doc:"JSON text: the paths of its import files, the first ones up to 1 KiB."`
	Billed            *compute.Credits     `json:"billed" doc:"Credits; null until settled. A parent has the sum of its children."`
	ExeceletStart     *compute.Instant     `json:"execelet_start" doc:"The attempt began on its node."`
	StartTime         *compute.Instant     `json:"start_time" doc:"The user's process started."`
	EndTime           *compute.Instant     `json:"end_time" doc:"The user's process exited."`
	FinishTime        *compute.Instant     `json:"finish_time" doc:"The terminal status was committed."`
	JobStart          *compute.Instant     `json:"job_start" doc:"As start_time."`
	JobEnd            *compute.Instant     `json:"job_end" doc:"As end_time."`
	FileName          *string              `json:"file_name"`
	Name              *string              `json:"name" doc:"A name for people."`
	ErrorsDocker      *string              `json:"errors_docker" doc:"Message of the Docker engine, when an image could not be had or its program not started."`
	ParentExecutionID *compute.ExecutionID `json:"parent_execution_id"`
	JobType           *string              `json:"job_type"`
	Metadata          *Metadata            `json:"metadata"`
	ProviderBilled    *compute.Credits     `json:"provider_billed" doc:"Cost for the operator, where the price list has one; null until settled."`
	UserID            *compute.UserID      `json:"user_id"`
	OrgID             *compute.OrgID       `json:"org_id"`
	Retries           int                  `json:"retries" doc:"Retries after system failures so far."`
	MaxRetries        int                  `json:"max_retries" doc:"How often it may."`
}

// Metadata is where an execution was and what it is marked with.
type Metadata struct {
	Node        *string         `json:"node" doc:"Name of its node."`
	GPUs        []compute.GPUID `json:"gpus"`
	GPUShares   []GPUShare      `json:"gpu_shares" doc:"Part of each GPU that it holds or held."`
	Isolation   *string         `json:"isolation" doc:"Whether the hardware keeps other executions off its GPUs' memory and compute: enforced or advisory, the weakest of its shares; null without GPU."`
	Attempt     uint64          `json:"attempt" doc:"Number of the newest attempt; 0 before the first."`
	ImageDigest *string         `json:"image_digest" doc:"Digest of the image that was executed: that of its registry, or of the engine for an image made there."`
	Images      []string        `json:"images,omitempty" doc:"The whole names of its images; absent unless it executes in containers."`
	Tags        []string        `json:"tags"`
	GPUTypes    []string        `json:"gpu_types,omitempty" doc:"The GPU types that it accepts, the preferred first; absent where it names one."`
	ImportFiles int             `json:"import_files,omitempty" doc:"How many import files it has, absent without any; local_imports shows the first ones."`
}

// GPUShare is the part of a GPU that an attempt holds.
type GPUShare struct {
	GPU         compute.GPUID `json:"gpu"`
	Milli       int           `json:"milli" doc:"Thousandths of the GPU."`
	VRAMMiB     int64         `json:"vram_mib" doc:"The memory that goes with them. The shares of a GPU never add up to more than it has."`
	Isolation   string        `json:"isolation" doc:"enforced: the hardware holds others to their share; advisory: nothing does."`
	IsolationBy string        `json:"isolation_by" doc:"device: a whole GPU, allocated to nothing else. mig: a slice with memory of its own. mig_compute: an instance that shares a slice's memory. time_slicing: the driver takes turns. simulated: only its part of the CPU quota is held. Empty for attempts recorded without it."`
}

// Execution is one execution with everything that is known of it.
type Execution struct {
	ExecutionSummary

	Stdout          string            `json:"stdout" doc:"The last 1 MiB."`
	Stderr          string            `json:"stderr" doc:"The last 1 MiB."`
	CombinedOutput  string            `json:"combined_output" doc:"The last 1 MiB, in the order in which it was written."`
	OutputTruncated bool              `json:"output_truncated" doc:"Whether there was more output than is shown."`
	ReturnCode      *int              `json:"return_code" doc:"Exit code of the code, 128+n for signal n; null while there is none."`
	Code            string            `json:"code" doc:"Python source; empty if a module, a command or a script is executed."`
	Module          *string           `json:"module"`
	Command         []string          `json:"command"`
	Script          *string           `json:"script"`
	Args            []string          `json:"args"`
	Reported        *Reported         `json:"reported,omitempty" doc:"Report of the client at POST /execution/compose/complete/{id}; absent before."`
	KernelState     *string           `json:"kernel_state" doc:"State that a notebook cell left for the next one: its kernel_state. Null for scripts, and while there is none."`
	InstallLog      *string           `json:"install_log"`
	InstallCode     *int              `json:"install_return_code"`
	Errors          []string          `json:"errors" doc:"Why it did not complete; empty otherwise."`
	Warnings        []string          `json:"warnings"`
	PendingReason   *string           `json:"pending_reason" doc:"Typed reason why it waits."`
	Attempts        []Attempt         `json:"attempts" doc:"Oldest first."`
	BundleID        *compute.BundleID `json:"bundle_id" doc:"The uploaded bundle whose files it got; it may have expired since."`
	Outputs         []Output          `json:"outputs" doc:"Files that it left in the directory outputs of its work directory, the first 1000 by name; kept for 30 days."`

	Timeout         int              `json:"timeout" doc:"Seconds; 0 for none."`
	Priority        int              `json:"priority"`
	Network         compute.Network  `json:"network"`
	DisconnectGrace int              `json:"disconnect_grace" doc:"Seconds."`
	MaxCredits      *compute.Credits `json:"max_credits"`
	Scratch         *Scratch         `json:"scratch,omitempty" doc:"The scratch space that it asked for; absent for the node's default."`
	Volumes         []Volume         `json:"volumes,omitempty"`
	S3MountPath     *string          `json:"s3_mount_path,omitempty" doc:"Where it sees the stored files; absent if it does not."`
	OutputsPrefix   string           `json:"outputs_prefix,omitempty" doc:"Folder of the stored files that gets a copy of its outputs; absent for none."`
	Environment     *string          `json:"environment,omitempty" doc:"The named environment that it asked for."`
	Usage           Usage            `json:"usage"`
}

// Attempt is one try to execute an execution on one node.
type Attempt struct {
	Attempt  uint64           `json:"attempt"`
	Node     string           `json:"node" doc:"Name of the node."`
	GPUs     []compute.GPUID  `json:"gpus"`
	Shares   []GPUShare       `json:"gpu_shares"`
	PlacedAt compute.Instant  `json:"placed_at"`
	EndedAt  *compute.Instant `json:"ended_at"`
	Status   string           `json:"status" doc:"How it ended; starting or running while it has not."`
	Reason   *string          `json:"reason"`
}

// Usage is the use of hardware by an execution, as its node measured it.
type Usage struct {
	CPUSeconds     float64 `json:"cpu_s"`
	PeakMemoryMiB  int64   `json:"peak_memory_mib"`
	GPUUtilPercent *int    `json:"gpu_utilization_percent" doc:"Mean; null without GPUs or if not measured: drivers do not report it for a MIG slice."`
	GPUMemoryMiB   *int64  `json:"gpu_memory_mib" doc:"Peak; null without GPUs or if not measured."`
	OutputBytes    int64   `json:"output_bytes"`
	OutputLines    int64   `json:"output_lines"`
}

// TimingAnswer answers /execution/{id}/timing.
type TimingAnswer struct {
	Timing Timing `json:"timing"`
}

// Timing is how long an execution was in each phase, so far.
type Timing struct {
	Queued   float64 `json:"queued_s"`
	Starting float64 `json:"starting_s"`
	Running  float64 `json:"running_s"`
	Total    float64 `json:"total_s"`
}

// ExecutionQuery are the parameters of GET /execution/{id}.
type ExecutionQuery struct {
	Wait  string `json:"wait" maxlen:"16" doc:"Hold the answer until the execution changes or ends, for at most so long: 30s, or a number of seconds; at most 60s."`
	Until string `json:"until" default:"\"change\"" enum:"change,end" doc:"End of the wait: any change, or the end of the execution."`
}
