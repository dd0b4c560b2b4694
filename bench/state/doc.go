// Package state measures what finished executions cost a replica: bytes of live
// heap for each, with all that belongs to it, the time of a snapshot, of a
// restore and of a backup, and how long the longest entry takes meanwhile.
//
// It drives a state machine by real commands, with no Raft around it: each
// execution is submitted with an API key, a tag, an op and a bundle of its own,
// placed, started and finished. Nothing is forgotten.
//
// Rules: the heap is what is live after garbage was collected. Clocks are for
// measuring; the state's own is virtual. Limits stand beside what was measured.
package state
