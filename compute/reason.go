package compute

// Reason is why an execution waits or, after its end, why it ended that way.
type Reason uint8

// The reasons. Values are written to disk: append only.
const (
	ReasonNone Reason = iota

	// Reasons to wait.
	ReasonScheduling     // The scheduler has not considered it yet.
	ReasonGPUsBusy       // Nodes have the GPU type, but all its GPUs are in use.
	ReasonResourcesBusy  // GPUs are free, but vCPU or memory beside them is not.
	ReasonNodesDown      // Only down or drained nodes could host it.
	ReasonNeverFits      // No known node could ever host it.
	ReasonOrgConcurrency // The organization is at its concurrency limit.
	ReasonSelecting      // A GPU selection waits for its sub-executions.
	ReasonNodeUnreached  // Its node does not answer; it may still be running.

	// Reasons to end.
	ReasonExitCode       // The exit code was not 0.
	ReasonSignal         // A signal ended the code.
	ReasonTimeout        // The time limit was reached.
	ReasonOutOfMemory    // The memory limit was reached.
	ReasonAborted        // Someone asked for a hard stop.
	ReasonStopped        // Someone asked for a graceful stop.
	ReasonNodeLost       // Its node was gone for longer than its grace.
	ReasonStartFailed    // The sandbox or the interpreter could not be started.
	ReasonInputsLost     // The code could not be read from any node.
	ReasonParentEnded    // Its parent was stopped.
	ReasonChildrenFailed // All sub-executions failed.
	ReasonNoCandidates   // No GPU type fits or is allowed.
	ReasonCredits        // The credits set aside were used up.
	ReasonSupervisorLost // The supervisor of the code was killed.

	// Reasons of the runs of a GPU selection.
	ReasonEarlierRun   // It waits for the previous run of its GPU type.
	ReasonNoCapacity   // Its GPU type had no capacity in time.
	ReasonStoppedEarly // It could not win.
	ReasonDeadline     // The GPU selection's deadline has passed.

	// More reasons to wait.
	ReasonKeyConcurrency // Its API key is at its concurrency limit.
	ReasonTagConcurrency // One of its tags is at its concurrency limit.
	ReasonQuotaGPUs      // The organization, key, tag or hardware profile is at its limit of GPUs.

	// ReasonPreempted is for an attempt that was preempted by work of a higher
	// priority, and for its requeued execution.
	ReasonPreempted

	// ReasonDrained is for an attempt whose node was drained, and for its
	// execution, which is requeued or, after the drain's deadline, has ended.
	ReasonDrained

	// ReasonRetry is for an execution that was requeued after a system failure.
	ReasonRetry

	// ReasonPackages is for an execution whose packages could not be installed.
	ReasonPackages

	// ReasonNotReady is for a replica of a service that was not ready in time.
	ReasonNotReady

	// ReasonReplicasEnded is for a service whose replicas all ended and stay ended.
	ReasonReplicasEnded

	// ReasonEnvironment is for an execution whose environment no node has ready that
	// could host it.
	ReasonEnvironment

	// ReasonImage is for an execution whose image could not be had.
	ReasonImage

	// Reasons of one node to refuse an execution in containers, which explanations
	// give. No record has them: there such an execution waits for ReasonNeverFits.
	ReasonNoEngine    // The node has no engine for it.
	ReasonTrustedOnly // Its engine isolates below the minimum: for trusted organizations only.

	// ReasonEngineDown is for an execution in containers that only nodes could host whose
	// engines do not answer.
	ReasonEngineDown

	ReasonProfileDenied      // The organization may not use its hardware profile.
	ReasonProfileConcurrency // The organization is at its concurrency limit for its hardware profile.
)

var reasonNames = names{
	"", "scheduling", "gpus_busy", "resources_busy", "nodes_down", "never_fits",
	"org_concurrency", "selecting", "node_unreachable",
	"exit_code", "signal", "timeout", "out_of_memory", "aborted", "stopped",
	"node_lost", "start_failed", "inputs_lost", "parent_ended", "all_children_failed",
	"no_candidates", "credits_exhausted", "supervisor_lost",
	"earlier_run", "no_capacity", "stopped_early", "deadline_passed",
	"key_concurrency", "tag_concurrency", "quota_gpus", "preempted", "drained",
	"retry", "packages", "not_ready", "replicas_ended",
	"environment", "image", "no_engine", "trusted_only", "engine_down", "profile_denied", "profile_concurrency",
}

// Reasons is the number of reasons.
const Reasons = int(ReasonProfileConcurrency) + 1

// Waits reports whether an execution can wait for r.
func (r Reason) Waits() bool {
	return ReasonNone < r && r <= ReasonNodeUnreached || r == ReasonEarlierRun ||
		ReasonKeyConcurrency <= r && r <= ReasonRetry || r == ReasonEnvironment ||
		ReasonEngineDown <= r && r <= ReasonProfileConcurrency
}

// String returns the stable snake_case name, "" for none.
func (r Reason) String() string { return reasonNames.text(uint8(r)) }

// MarshalText returns what String returns.
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText accepts what String returns.
func (r *Reason) UnmarshalText(text []byte) error {
	v, err := reasonNames.value("reason", text)
	*r = Reason(v)
	return err
}
