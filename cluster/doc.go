// Package cluster runs one node of the cluster: its identity and certificate,
// the cluster port, Raft, proposals and linearizable reads on any node, and the
// parts in its child packages: gossip, clock, replica and membership.
//
// It is not for the content of the state: commands are opaque frames,
// Config.FSM is the state machine, and Config.Registry decides who may join. It
// does not decide that a node is lost; it reports when the leader last heard it.
//
// Rules: every change of the state goes through Propose, and every read that
// must not be stale begins with ReadIndex. A certificate identifies a node; an
// address does not. Gossip is a hint: no decision rests on it alone. The Raft
// protocol gives full control of the cluster, so only servers may speak it.
// Every wait has a deadline and every queue a limit. Children declare what they
// need; this package imports them, never the reverse. DESIGN.md has the reasons.
package cluster
