// Package schedule measures how fast a cluster places executions durably: the
// leader's own loop over three peers with real Raft, mutual TLS and an fsync
// for every entry, for thousands of simulated nodes.
//
// The peers are the cluster and the state machine as every node has them, in
// one process, and each runs the scheduler's loop while it leads. What is
// simulated are the nodes that execute: they are records which real commands
// have registered, with inventories, and no processes behind them. So nothing
// is executed, and nothing ends.
//
// Rules: an execution counts as placed when the entry with its plan was
// committed on a quorum and applied on the leader. Clocks are for measuring.
package schedule
