package compute

// Reason is the typed answer to "why does it wait?" and, for an execution that
// has ended, "why did it end so?".
type Reason uint8

// The reasons. Values are written to disk: append only.
const (
	ReasonNone Reason = iota

	// Why it waits.
	ReasonScheduling     // The scheduler has not considered it yet.
	ReasonGPUsBusy       // Nodes have the GPU type, all of it in use.
	ReasonResourcesBusy  // GPUs are free, vCPU or memory beside them is not.
	ReasonNodesDown      // Only nodes that are down or drained could host it.
	ReasonNeverFits      // No known node could ever host it.
	ReasonOrgConcurrency // The organization runs as much as it may at once.
	ReasonSelecting      // A GPU selection waits for its sub-executions.
	ReasonNodeUnreached  // Its node does not answer; it may still be running.

	// Why it ended.
	ReasonExitCode       // The code exited with another code than 0.
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
	ReasonSupervisorLost // What watched the code was killed.

	// Of the runs of a GPU selection.
	ReasonEarlierRun   // It waits for the run of its GPU type before it.
	ReasonNoCapacity   // Its GPU type had no capacity in time.
	ReasonStoppedEarly // It could not win any more.
	ReasonDeadline     // The GPU selection's deadline has passed.

	// Why it waits, again.
	ReasonKeyConcurrency // Its API key runs as much as it may at once.
	ReasonTagConcurrency // What carries one of its tags runs as much as it may at once.
	ReasonQuotaGPUs      // The organization, key or tag holds as many GPUs as it may.

	// ReasonPreempted is why an attempt ended that was preempted for work of a
	// higher priority, and why its execution waits again.
	ReasonPreempted

	// ReasonDrained is why an attempt ended whose node was drained, and why its
	// execution waits again or, after the drain's deadline, has ended.
	ReasonDrained

	// ReasonRetry is why an execution waits again whose attempt ended through a
	// failure of ours.
	ReasonRetry
)

var reasonNames = names{
	"", "scheduling", "gpus_busy", "resources_busy", "nodes_down", "never_fits",
	"org_concurrency", "selecting", "node_unreachable",
	"exit_code", "signal", "timeout", "out_of_memory", "aborted", "stopped",
	"node_lost", "start_failed", "inputs_lost", "parent_ended", "all_children_failed",
	"no_candidates", "credits_exhausted", "supervisor_lost",
	"earlier_run", "no_capacity", "stopped_early", "deadline_passed",
	"key_concurrency", "tag_concurrency", "quota_gpus", "preempted", "drained",
	"retry",
}

// Reasons is the number of reasons.
const Reasons = int(ReasonRetry) + 1

// Waits reports whether an execution can wait for r.
func (r Reason) Waits() bool {
	return ReasonNone < r && r <= ReasonNodeUnreached || r == ReasonEarlierRun ||
		ReasonKeyConcurrency <= r && r <= ReasonRetry
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
