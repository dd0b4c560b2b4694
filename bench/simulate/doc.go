// Package simulate replays work against the scheduler and the state machine
// that a cluster runs, under a clock of its own: days of a large cluster in
// minutes.
//
// Nothing is modelled that is there: executions are submitted, placed, started
// and finished by the commands that nodes and leaders propose, encoded and
// decoded as in a Raft log, applied by fsm.FSM, and planned by the Packer that
// the leader uses, from the state machine's own views. What is left out is
// Raft's network and disks, and user code: an execution takes as long as the
// workload says. All that happens within one round, a second by default, is
// committed together and planned once.
//
// The same Config gives the same simulation, times of the machine aside.
package simulate
