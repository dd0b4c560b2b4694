// Package state measures what finished executions cost a replica: bytes of live
// heap for each, with all that belongs to it, the time of a snapshot, of a
// restore and of a backup, and how long entries take meanwhile.
//
// It drives a state machine by real commands, with no Raft around it: each
// execution is submitted with an API key, a tag, an op and a bundle of its own,
// placed, started and finished. Nothing is forgotten.
//
// Entries come every 2 ms, whether or not the one before has been applied, in
// three turns: alone, beside a goroutine that computes and touches no memory,
// and while a snapshot is written. What the second takes more than the first is
// the machine's; what the third takes more than the second is the snapshot's.
//
// With a program it begins with a real node of that: a process, a minute old,
// whose resident memory is read and whose state the executions are added to. In
// the end the backup is restored to the node's data directory by the operator's
// command, and the node started twice; it is ready when /readyz says so. Then
// it is asked for changes, one every 2 ms, until it has written a snapshot by
// itself and some entries lie behind that, and started with those. What was due
// while the snapshot was written is told apart from the rest.
//
// Rules: the heap is what is live after garbage was collected. Clocks are for
// measuring; the state's own is virtual. Limits stand beside what was measured.
package state
