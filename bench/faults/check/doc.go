// Package check decides whether the results that clients and executions saw are
// consistent with one correct machine.
//
// A History holds tries: the request, the answer and their times, in
// nanoseconds of one clock. Each object of a history (a register, an account,
// an API key, an execution) is checked separately for linearizability with
// Porcupine, which uses Wing and Gong's search as improved by Lowe (Testing for
// linearizability, 2017). An unanswered try may take effect at any time after
// its call, or never: its return is at +infinity. A check that does not end in
// time is a violation, not a pass.
//
// Other invariants need no search: the marks that executions leave on disk
// (Marks) and the lines of ledgers.
//
// The package does not talk to a cluster or read a clock.
package check
