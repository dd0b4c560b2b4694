// Package supervise is the process that watches one attempt: it owns the
// attempt's cgroup, its timers, its output and its journal, and it outlives
// the node process that started it. Nobody else kills the code.
//
// The node speaks to it over a socket (Conn): how long ago the leader was
// reached, and how to stop. It answers when the code started and when the
// attempt ended, and the journal has the same, durably. Timers run on
// CLOCK_BOOTTIME, which goes on while the machine sleeps.
//
// It decides how an attempt ended and nothing else. It imports the standard
// library, compute, node/logs and its light siblings only: package early calls
// it before the rest of the binary initialises.
package supervise
