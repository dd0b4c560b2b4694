// Package dst is deterministic simulation testing: a whole cluster in one
// process, under a virtual clock, with seeded faults, and with invariants: what
// an entry is about is looked at after each, all executions, acknowledged
// requests and settled ledgers after every 256, the whole state after every 2,048
// and at the end. The same Config gives the same history, byte for byte, so that
// the seed of a violation replays it.
//
// Real is what decides: the state machine on three replicas (encoded frames,
// applied in different batches, restored from snapshots), the Packer of the
// leader, the protocol of package attempt, the leases and contacts of package
// boottime, and the journal and the outbox's lines of package journal, on disks
// that keep what was synced and some part of what was not. Bugs that are planted
// into that code with the build tag faults are found here too, see package fault.
//
// Modelled is what moves and waits. The replicated log: terms, one effective
// leader, older ones that go on for a second, a prefix of what a dead leader
// appended that survives or does not, commits by two of three. Proposals:
// forwarded, lost, late, twice, tried again. The leader's duties of package
// node (watching nodes, giving attempts up, ticks, one plan at a time) and the
// node's part of package executor (matching views, `starting` before the start,
// adopting, contact and disconnect grace, the outbox), both after their text,
// with the same times. The network, clocks, machines, supervisors, code and
// clients.
//
// It is not for Raft's own protocol, disks that fail, gossip, joining nodes,
// the API, GPU selections or output: nothing of those is here. Events happen
// one after the other on one goroutine; chance comes from one generator, and
// nothing reads a clock or the order of a map.
package dst
