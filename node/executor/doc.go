// Package executor lives the life of the attempts of one node: it takes the
// node's live attempts from a Source, starts each in a sandbox under a
// supervisor process of its own, and reports how each ended, at least once,
// from an outbox on disk.
//
// It decides nothing about placement, money or retries, and knows nothing of
// Raft: package node adapts the state to the three small interfaces here.
//
// Rules. User code starts at most once per execution and epoch: the journal
// has `starting` on disk before the code is started, and an attempt whose
// journal has it is never started again. A supervisor outlives the process
// that started it; the next Open on the same directory finds it again. What
// the supervisor and the sandbox need before the big packages of the binary
// initialise is in the light sub-packages (early, supervise, sandbox, journal,
// cgroup), which import the standard library, compute and node/logs only.
// DESIGN.md has the states of the files and the table of failures.
package executor
