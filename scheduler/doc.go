// Package scheduler decides where executions run. Pack computes a plan from one
// view of the state, Survey explains why an execution waits, and Loop is the
// leader's loop that turns views into committed plans. Package selection
// decides about GPU selections. Package forecast answers questions about the
// future of the queue.
//
// It is not for keeping state: the queue, the nodes and the attempts are
// records of the state, read through View. It knows no command and no
// replication. A Committer proposes its decisions, and the state checks every
// assignment again.
//
// Rules: Pack and Explain are pure. They read their arguments, no clock, no
// randomness and no map order, and compare integers only, so that the same view
// gives the same plan on every node. A Packer caches scores between calls. The
// cache makes it faster and never changes its answer.
package scheduler
