package inspect

// reasonText returns the meaning and the remedy of a typed reason, "" for one
// that this program does not know.
func reasonText(name string) string { return reasonTexts()[name] }

// reasonTexts returns the texts of all reasons.
func reasonTexts() map[string]string {
	return map[string]string{
		// Reasons of a wait.
		"scheduling":     "the scheduler has not considered it yet; this takes moments",
		"gpus_busy":      "nodes have the GPU type, but too little of it is free",
		"resources_busy": "GPUs are free, but not enough vCPU or memory on their nodes",
		"nodes_down":     "only nodes that are down, drained or broken could host it",
		"never_fits":     "no known node could host it, even when empty: ask for less, or add a node (berth whatif --add)",
		"no_engine": "no node that could host it has Docker, or Docker Compose for a Compose file: " +
			"an operator installs it, or sets docker.host",
		"trusted_only": "the engines of the nodes that could host it isolate containers below the minimum, for trusted " +
			"organizations only: an operator updates them, or trusts the organization (berth admin org trust), " +
			"for executions that are submitted after that",
		"engine_down": "the Docker engines of the nodes that could host it do not answer (berth admin nodes): " +
			"it starts once one does",
		"org_concurrency": "the organization is at its limit of concurrent executions (berth admin quota)",
		"key_concurrency": "its API key is at its limit of concurrent executions (berth admin quota)",
		"tag_concurrency": "one of its tags is at its limit of concurrent executions (berth admin quota)",
		"quota_gpus":      "the organization, its key, its tag or its hardware is at its GPU limit (berth admin quota)",
		"profile_concurrency": "the organization is at its limit of concurrent executions on this hardware " +
			"(berth admin quota)",
		"profile_denied": "the organization may not use this hardware any longer (berth admin quota): " +
			"abort it, and submit it for other hardware",
		"selecting":        "a GPU selection waits for its sub-executions",
		"node_unreachable": "its node does not answer; it may still be executing there",
		"earlier_run":      "it waits for the previous run of its GPU type",
		"retry": "its attempt ended with a system failure and is free; " +
			"it is queued again at its previous position",
		"preempted": "it was preempted by a higher priority and is queued again at its previous position; " +
			"that attempt is free unless it was the organization's own work",
		"drained": "its node was drained; if it may restart it is queued again at its previous position, " +
			"and that attempt is free",

		// Reasons of an end.
		"exit_code": "the code exited with a code other than 0",
		"signal":    "a signal ended the code",
		"timeout":   "the time limit was reached (--timeout)",
		"out_of_memory": "the memory limit was reached: a larger profile has more; " +
			"a system_failure is free: the machine had no memory left",
		"aborted":         "it was aborted on request",
		"stopped":         "it was stopped on request",
		"node_lost":       "its node was lost for too long; it is free",
		"start_failed":    "the sandbox or the interpreter could not be started; it is free",
		"inputs_lost":     "the code could not be read from any node; it is free",
		"supervisor_lost": "its supervisor was killed; it is free",
		"packages": "the packages that it asked for could not be installed: " +
			"its output has the installer's words; it is free",
		"environment": "no node that could host it has its environment ready: " +
			"berth env ls shows how far they are",
		"image":               "its image could not be had: it does not exist, may not be pulled, or is for other machines",
		"not_ready":           "the replica did not answer on its port in time: its output may say why (berth service logs)",
		"replicas_ended":      "all replicas of the service ended, and its restart policy starts none again",
		"parent_ended":        "its GPU selection or its service was stopped",
		"all_children_failed": "all sub-executions failed; each says why",
		"no_candidates":       "no GPU type fits or is allowed",
		"credits_exhausted":   "its held credits were used up",
		"no_capacity":         "its GPU type had no capacity in time",
		"stopped_early":       "it could no longer win",
		"deadline_passed":     "the GPU selection's deadline has passed",
	}
}
