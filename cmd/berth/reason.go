package main

// reasonText returns what a typed reason means and what can be done about it,
// "" for one that this program does not know.
func reasonText(name string) string { return reasonTexts()[name] }

// reasonTexts says it for every reason there is.
func reasonTexts() map[string]string {
	return map[string]string{
		// Why it waits.
		"scheduling":       "the scheduler has not looked at it yet; that takes moments",
		"gpus_busy":        "nodes have the GPU type, and too little of it is free",
		"resources_busy":   "GPUs are free, vCPU or memory beside them is not",
		"nodes_down":       "only nodes that are down, drained or broken could host it",
		"never_fits":       "no known node could host it, even when empty: ask for less, or add a node (berth whatif --add)",
		"org_concurrency":  "the organization executes as much as it may at once (berth admin quota)",
		"key_concurrency":  "its API key executes as much as it may at once (berth admin quota)",
		"tag_concurrency":  "what carries one of its tags executes as much as it may at once (berth admin quota)",
		"quota_gpus":       "the organization, its key or its tag holds as many GPUs as it may (berth admin quota)",
		"selecting":        "a GPU selection waits for its sub-executions",
		"node_unreachable": "its node does not answer; it may still be executing there",
		"earlier_run":      "it waits for the run of its GPU type before it",
		"retry": "its attempt ended through a failure of the system and is free; " +
			"it is queued again at its old place",
		"preempted": "it made room for work of a higher priority and is queued at its old place; that attempt is free",
		"drained":   "its node was drained; what may begin anew is queued at its old place, and that attempt is free",

		// Why it ended.
		"exit_code":           "the code exited with another code than 0",
		"signal":              "a signal ended the code",
		"timeout":             "the time limit was reached (--timeout)",
		"out_of_memory":       "the memory limit was reached: a larger profile has more",
		"aborted":             "someone asked for a hard stop",
		"stopped":             "someone asked for a graceful stop",
		"node_lost":           "its node was gone for longer than it may be; it is free",
		"start_failed":        "the sandbox or the interpreter could not be started; it is free",
		"inputs_lost":         "the code could not be read from any node; it is free",
		"supervisor_lost":     "what watched the code was killed; it is free",
		"parent_ended":        "its GPU selection was stopped",
		"all_children_failed": "all sub-executions failed; each says why",
		"no_candidates":       "no GPU type fits or is allowed",
		"credits_exhausted":   "the credits set aside were used up",
		"no_capacity":         "its GPU type had no capacity in time",
		"stopped_early":       "it could not win any more",
		"deadline_passed":     "the GPU selection's deadline has passed",
	}
}
