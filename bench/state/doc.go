// Package state measures the cost of finished executions on a replica. It
// measures bytes of live heap per execution, the time of a snapshot, a restore
// and a backup, and the latency of entries meanwhile.
//
// It drives a state machine with real commands, without Raft. Each execution
// has an API key, a tag, an op and its own bundle. It is submitted, placed,
// started and finished. Nothing is pruned.
//
// Entries arrive every 2 ms, whether or not the previous one has been applied,
// in three phases: alone, beside a goroutine that computes without touching
// memory, and during a snapshot. The second phase minus the first is the
// machine's cost. The third minus the second is the snapshot's cost.
//
// With a program, the measurement uses a real node. It first measures the
// resident memory of a minute-old process, and adds the executions to the
// node's state. At the end the operator's command restores the backup to the
// node's data directory, and the node starts twice; it is ready when /readyz
// reports so. Then the node gets one change every 2 ms until it has written a
// snapshot by itself and some entries follow it. It restarts with those.
// Changes that were due during the snapshot are reported separately.
//
// Heap figures are live memory after garbage collection. Clocks serve
// measurement only; the state's own clock is virtual. The report has the limits
// beside the results.
package state
