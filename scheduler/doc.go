// Package scheduler decides where executions go. Pack computes a plan from one
// view of the state, Candidates and Judge are the two ends of a GPU selection,
// and Loop is the leader's duty that turns views into committed plans.
//
// It is not for keeping anything: the queue, the nodes and what attempts hold
// are records of the state, read through View. It knows no command and no
// replication; what it wants is handed to a Committer, and the state checks
// every assignment again.
//
// Rules: Pack, Explain, Candidates and Judge are pure. They read their
// arguments, no clock, no randomness and no map order, and compare integers
// only, so that the same view gives the same plan on every node. What a Packer
// remembers between calls makes it faster and never changes its answer.
package scheduler
