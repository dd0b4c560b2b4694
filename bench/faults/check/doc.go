// Package check says whether what clients and executions saw is what one
// correct machine could have shown them.
//
// A History holds tries: what was asked, when, and what was answered, in
// nanoseconds of one clock. Each object of a history (a register, an account,
// an API key, an execution) is checked apart for linearizability with
// Porcupine, by Wing and Gong's search as Lowe improved it (Testing for
// linearizability, 2017). A try whose answer never came may take effect at any
// time after its call, or never: its return is at +infinity. A check that does
// not end in time is a violation, not a pass.
//
// Beside that are the invariants that need no search: what executions left on
// disk (Marks) and the lines of ledgers.
//
// Nothing here talks to a cluster or reads a clock.
package check
