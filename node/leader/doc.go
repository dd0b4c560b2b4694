// Package leader has the duties of the leader of a cluster. It bootstraps a new
// cluster, runs the scheduler, records nodes as up and down, and gives up lost
// attempts. It stops runs of GPU selections that cannot win, moves old executions
// to archives, and saves backups.
//
// Every duty is level-triggered: a round reads the whole state and does what is
// missing. A new leader therefore needs no hand-over, and an interrupted duty is
// repeated. All work ends with the context of the term.
//
// The package decides nothing about executions or placement itself: package attempt
// judges silence, packages scheduler and selection judge executions, and the state
// checks each command again.
package leader
