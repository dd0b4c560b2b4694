// Package dst is deterministic simulation testing: a whole cluster in one
// process, with a virtual clock, seeded faults and invariants. It checks the
// objects of an entry after each entry; all executions, acknowledged requests
// and settled ledgers after every 256 entries; and the whole state after every
// 2,048 entries and at the end. The same Config gives the same history, byte
// for byte, so the seed of a violation replays it. Package bench defines the
// terms.
//
// The simulation runs the real code that decides:
//
//   - the state machine on three replicas, with encoded frames, different
//     batches and restores from snapshots
//   - the leader's Packer
//   - the protocol of package attempt
//   - the leases and contacts of package boottime
//   - the journal and the outbox records of package journal, on disks that keep
//     synced data and part of the unsynced data
//
// It also finds the bugs that the build tag faults plants into that code; see
// package fault.
//
// It models the parts that move data and wait:
//
//   - The replicated log: terms, one effective leader, older leaders that
//     continue for a second, commits by two of three. A prefix of a dead
//     leader's appended entries may or may not survive.
//   - Proposals: forwarded, lost, late, duplicated, retried.
//   - The leader's duties of package node: watching nodes, giving up attempts,
//     ticks, one plan at a time. They follow its text and its times.
//   - The node's part of package executor, likewise: matching views, `starting`
//     before the start, adopting, contact and disconnect grace, the outbox.
//   - The network, clocks, machines, supervisors, code and clients.
//
// It does not cover Raft's own protocol, failing disks, gossip, joining nodes,
// the API, GPU selections or output. Events run one after another on one
// goroutine. Randomness comes from one generator, and nothing reads a clock or
// depends on the order of a map.
package dst
