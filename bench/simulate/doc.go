// Package simulate replays workloads against the real scheduler and state
// machine under a virtual clock: days of a large cluster in minutes.
//
// It runs a cluster's own code where possible. Executions are submitted,
// placed, started and finished by the commands that nodes and leaders propose.
// These are encoded and decoded as in a Raft log and applied by fsm.FSM. The
// leader's Packer plans them from the state machine's own views. Raft's network
// and disks are left out, and so is user code: the workload determines how long
// an execution takes. The events of one round, a second by default, are
// committed together and planned once.
//
// The same Config gives the same simulation, except for wall times.
package simulate
