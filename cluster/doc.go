// Package cluster is one peer's place in the cluster: its identity and
// certificate, the one port on which nodes talk, Raft, linearizable reads,
// proposals from any node, membership, and gossip.
//
// It is not for what the cluster agrees on: commands are opaque frames, the
// state machine arrives in Config.FSM, and who may join is asked of
// Config.Registry. It does not decide that a node is lost; it says when the
// leader last heard from it.
//
// Rules: what moves state goes through Propose, what must not be stale begins
// with ReadIndex. A node is who its certificate says, never who its address
// suggests. Gossip is a hint: nothing is decided on it alone. The raft port
// is root on the cluster, so only servers reach it. Everything that waits has
// a deadline, everything that queues a limit. DESIGN.md tells why.
package cluster
