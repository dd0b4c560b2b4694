// Package attempt is the protocol of attempts. It says how long an attempt may run
// without contact, when the leader may give it up, and when its execution starts
// again. It also says when so many nodes vanish at once that nothing is given up at
// all. Judge combines these rules for a leader. Nodes, the leader, the
// state machine and the simulation use the same functions, so that no two of
// them can disagree.
//
// It is not for doing any of it: no I/O, no clock, no randomness, no goroutine.
// Apply calls Decide and BrakedSince, so their answers may only change with the
// format of the state.
//
// The rule behind all times: a node counts from when it sent the last heartbeat
// that was answered. The leader counts from when it heard the last one, and
// waits Margin longer. Heartbeats are answered only by a
// leader that a majority confirmed after they arrived, so a newer leader cannot
// have begun to count before. While a leader gives up attempts of a
// node, it does not answer that node, which would start those it has not started.
package attempt
