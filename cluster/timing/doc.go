// Package timing measures the delays that limit how short Raft's timers may be: those of
// a durable write to the disk, and of round trips to the other servers.
//
// It is not for supervision at runtime: a server measures once, before Raft starts,
// because raft cannot change the lease of a leader while it runs.
//
// Rule: a measurement that fails counts as slow. Timers that are too long delay a
// fail-over by a second; timers that are too short depose healthy leaders.
package timing
