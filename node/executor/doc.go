// Package executor runs the attempts of one node. It takes the node's live
// attempts from a Source and starts each in a sandbox under its own supervisor
// process. It reports how each ended at least once, from its journal or from an outbox on disk.
//
// It decides nothing about placement, money or retries, and knows nothing of Raft:
// package node adapts the state to the three small interfaces here.
//
// Rules. User code starts at most once per execution and epoch. The journal has
// `starting` on disk before the code is started, and an attempt whose journal has
// it is never started again. A supervisor outlives the process that started it.
// The next Run on the same directory finds it again. The supervisor and the
// sandbox start before the big packages of the binary initialise. Their code is in
// the light sub-packages (early, supervise, sandbox, journal, cgroup), which
// import only the standard library and light packages of Berth. DESIGN.md
// describes the states of the files and the failures.
package executor
