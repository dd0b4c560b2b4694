// Package schedule measures how fast a cluster durably places executions. It
// runs the leader's own loop over three peers with real Raft, mutual TLS and an
// fsync for every entry, for thousands of simulated nodes.
//
// The peers run a node's cluster and state machine code in one process, and
// each runs the scheduler's loop while it leads. The nodes that execute are
// simulated: real commands register them with inventories, but they have no
// processes. So nothing runs, and nothing ends.
//
// An execution counts as placed when the entry with its plan is committed on a
// quorum and applied on the leader. Clocks serve measurement only.
package schedule
