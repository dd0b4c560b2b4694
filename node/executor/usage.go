package executor

import (
	"time"

	"berth/compute"
	"berth/node/executor/cgroup"
	"berth/node/executor/live"
	"berth/node/executor/prepare"
)

// SimulatedCPU returns the CPU time that an attempt of this node has used so far,
// and the CPU quota that represents its simulated GPUs, in thousandths of a core.
// It returns false for an attempt that has no simulated GPU or does not run here.
func (e *Executor) SimulatedCPU(work compute.Work) (used time.Duration, quotaMilli int64, ok bool) {
	quotaMilli, ok = prepare.SimulatedCPU(work)
	if !ok {
		return 0, 0, false
	}
	used, err := e.groupOf(live.KeyOf(work.Attempt)).CPUTime()
	return used, quotaMilli, err == nil
}

// Resources returns the CPU time that an attempt of this node has used so far and its
// memory use in bytes. It returns false for an attempt that does not run here.
func (e *Executor) Resources(work compute.Work) (cpu time.Duration, memory int64, ok bool) {
	group := e.groupOf(live.KeyOf(work.Attempt))
	cpu, err := group.CPUTime()
	if err != nil {
		return 0, 0, false
	}
	memory, err = group.Memory()
	return cpu, memory, err == nil
}

// groupOf returns the cgroup of a live attempt of this node.
func (e *Executor) groupOf(k live.Key) *cgroup.Group {
	if a := e.live.Get(k); a != nil {
		return e.groups.Group(a)
	}
	return e.groups.Host.Group(e.groups.Name(k))
}
