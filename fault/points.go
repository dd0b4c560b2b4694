package fault

// PointInfo describes a failpoint.
type PointInfo struct {
	Name  string
	Fails bool   // The step can fail: an error can be armed.
	What  string // What is done and what is not when the process ends here.
}

// Points returns all failpoints, as PART.STEP. A line is added here with the
// call of Point or Error that has the name.
func Points() []PointInfo { //nolint:funlen // A list.
	return []PointInfo{
		{"cluster.propose.before_apply", false, "the leader has a batch of commands, and Raft has none of it"},
		{"cluster.propose.after_apply", false, "a batch is committed and applied, and nobody was answered"},
		{"cluster.propose.forward", false, "a follower has commands, and the leader has none of them"},
		{"cluster.propose.forwarded", false, "the leader has answered a follower, which has answered nobody"},
		{"cluster.propose.answer", false, "the leader has committed what a follower forwarded, and not answered it"},
		{"cluster.term.open", false, "a leader was elected, and has no entry of its own term"},
		{"cluster.term.opened", false, "the term's first entry is committed, and nobody leads in it yet"},
		{"cluster.join.prepared", false, "a node that joins has its id on disk, and has asked nobody"},
		{"cluster.join.admit", false, "the leader was asked to admit a node, and the state knows nothing of it"},
		{"cluster.join.add", false, "the state has admitted a server that is in no configuration of Raft"},
		{"cluster.join.added", false, "a server is in the configuration, and has no answer"},
		{"cluster.join.answered", false, "a node that joins has the answer, and nothing of it on disk"},
		{"cluster.join.save", false, "certificate and keys are on disk, the addresses of the others are not"},
		{"cluster.join.settle", false, "Raft runs, and the node does not know yet that it is a member"},
		{"cluster.member.promote", false, "a server keeps up, and does not vote yet"},
		{"cluster.member.demote", false, "a voter is to vote no longer, and still does"},
		{"cluster.member.remove", false, "a server was removed from the state, and is in the configuration"},
		{"cluster.member.changed", false, "the configuration has changed, and its leader has not looked again"},

		{"disk.append.before", true, "entries are to be appended to the log, and none is"},
		{"disk.append.after", false, "entries are durable, and the mark of the log's end is not yet"},
		{"disk.set.before", true, "a term or a vote is to be stored, and is not"},
		{"disk.set.after", false, "a term or a vote is durable, and its number in the mark is not yet"},
		{"disk.delete.before", false, "the mark of the log's end is lowered, and entries are not deleted yet"},
		{"disk.delete.after", false, "entries are deleted, and Raft does not know it"},
		{"disk.ballast.make", true, "the ballast has a name, and no room"},
		{"disk.tail.write", true, "the mark of the log's end is to be written, and is not"},

		{"fsm.apply.before", false, "entries are committed, and not applied here"},
		{"fsm.apply.after", false, "entries are applied, and no view shows them"},
		{"fsm.snapshot.begin", true, "a snapshot has a directory, and nothing in it"},
		{"fsm.snapshot.written", true, "a snapshot is written, and neither checked nor named"},
		{"fsm.snapshot.closed", false, "a snapshot is whole, and the log before it is still there"},
		{"fsm.restore.begin", false, "a snapshot is to be read, and the state is the old one"},
		{"fsm.restore.read", false, "a snapshot was read, and the state is the old one"},

		{"leader.found.bootstrap", false, "a new cluster has a leader and no state"},
		{"leader.found.register", false, "the state is made, and has no node"},
		{"leader.found.registered", false, "the first node is in the state, and the settings are not compared yet"},
		{"leader.settings.before", false, "the settings of the leader differ from the state's"},
		{"leader.settings.after", false, "the settings are those of the leader, which has not gone on"},
		{"leader.format.before", false, "every server knows a newer format, and the state does not allow it"},
		{"leader.format.after", false, "a newer format is allowed, and the leader does not know it"},
		{"leader.inventory.before", false, "a node told its GPUs, and the state does not know them"},
		{"leader.inventory.after", false, "the state knows the GPUs of a node, and the leader has not gone on"},
		{"leader.node_state.before", false, "a node is silent or back, and the state does not say so"},
		{"leader.node_state.after", false, "the state says that a node is silent or back, and its attempts are as they were"},
		{"leader.lose.before", false, "attempts are surely over, and the state has them live"},
		{"leader.lose.after", false, "attempts are given up, and the leader has not gone on"},
		{"leader.tick.before", false, "time has passed, and not in the state"},
		{"leader.tick.after", false, "time has passed in the state, and the signing key was not looked at"},
		{"leader.races.before", false, "runs of a GPU selection cannot win, and are not stopped"},
		{"leader.races.after", false, "runs of a GPU selection are asked to stop, and the leader has not gone on"},

		{"scheduler.commit.before", false, "a plan is made, and nothing of it is in the state"},
		{"scheduler.commit.after", false, "a plan is in the state, and its maker does not know it"},
		{"scheduler.take.before", false, "a GPU selection waits, and has no sub-executions"},
		{"scheduler.take.after", false, "a GPU selection is taken, and its sub-executions wait"},

		{"executor.prepare.begin", false, "an attempt is placed here, and nothing of it is on disk"},
		{"executor.prepare.journal", false, "an attempt has an empty journal, and nothing to execute"},
		{"executor.spawn.before", false, "an attempt is laid out, and has no supervisor"},
		{"executor.spawn.after", false, "an attempt has a supervisor that the node does not follow yet"},
		{"executor.started", false, "a supervisor said that its code started, and the node has not noted it"},
		{"executor.start.report", false, "code has started, and the state does not know it"},
		{"executor.start.reported", false, "the state knows that code has started, and the node has not gone on"},
		{"executor.conclude.begin", false, "an attempt is over, and its outcome is in no outbox"},
		{"executor.outbox.put", true, "an outcome is to be stored, and is not"},
		{"executor.outbox.stored", false, "an outcome is durable, and nobody sends it"},
		{"executor.conclude.clean", false, "an outcome is on its way, and the attempt's files are gone"},
		{"executor.outbox.send", false, "an outcome is durable, and the state does not have it"},
		{"executor.outbox.sent", false, "the state has an outcome, and the node does not know it"},
		{"executor.outbox.reported", false, "an outcome is marked as reported, and still in the outbox"},
		{"executor.outbox.removed", false, "an outcome is reported and forgotten"},
		{"executor.adopt.begin", false, "a node has started again, and an attempt of before is not looked at"},
		{"executor.adopt.reunite", false, "an attempt of before lives, and the node does not follow it yet"},
		{"executor.adopt.buried", false, "an attempt of before is over, its cgroup gone, its outcome in no outbox"},
		{"executor.adopt.discard", false, "an attempt of before never started, and its directory is there"},
		{"supervisor.starting.before", true, "a supervisor lives, and the journal does not say that code may start"},
		{"supervisor.starting.after", false, "the journal says that code may start, and it has not"},
		{"supervisor.execute.before", false, "the sandbox is ready, and the code is not started"},
		{"supervisor.execute.after", false, "the code is started, and the journal does not say so"},
		{"supervisor.started", false, "the code is started, and the node was not told"},
		{"supervisor.ended.before", false, "the code has ended, and the journal does not say so"},
		{"supervisor.ended.after", false, "the journal says how the code ended, and the node was not told"},

		{"storage.write.sync", true, "a blob is written, and not durable"},
		{"storage.place", true, "a blob is durable, and has no name"},
		{"storage.placed", false, "a blob has its name, which is not durable"},
		{"storage.put.taken", false, "nodes have a blob, and who put it does not know"},

		{"api.admit.before", false, "a request was read, and its caller is not known"},
		{"api.handle.before", false, "a request is well formed and allowed, and nothing was done for it"},
		{"api.propose.before", false, "a request is to change the state, and nothing was proposed"},
		{"api.propose.after", false, "a request has changed the state, and its answer is not made"},
		{"api.reply.before", false, "an answer is made, and not sent"},
	}
}
