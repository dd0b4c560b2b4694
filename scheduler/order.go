package scheduler

import (
	"iter"

	"berth/compute"
	"berth/scheduler/queue"
)

// Order yields the queued executions in the order of package queue. Pack walks
// the queue in the same order, counting only its real placements.
func Order(v View) iter.Seq[*compute.Execution] { return queue.Order(v) }
