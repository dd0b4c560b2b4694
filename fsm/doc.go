// Package fsm is the replicated state machine: every decision that all nodes
// must make alike is made here. Commands come in as Raft entries, Apply
// decides them against the state, and one immutable View per batch goes out
// for everybody to read.
//
// It is not for I/O, for choosing where work goes (package scheduler) or for
// reaching agreement (package cluster).
//
// Its rules: Apply reads the command and the state, nothing else: no clock,
// no randomness, no order of a map, no goroutine, no float. Time is the
// state's own clock, which the leader's Clock command raises. A faulty
// command gets a refusal in its Result, and a refusal changes nothing.
// Records are immutable: a change is a changed copy. New truth comes with a
// command, an invariant in Check and a place in the random history of the
// tests.
package fsm
