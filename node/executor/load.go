package executor

import (
	"time"

	"berth/compute"
	"berth/node/executor/cgroup"
)

// SimulatedCPU returns the CPU time that an attempt of this node has used so far,
// and the CPU quota that represents its simulated GPUs, in thousandths of a core.
// It returns false for an attempt that has no simulated GPU or does not run here.
func (e *Executor) SimulatedCPU(work compute.Work) (used time.Duration, quotaMilli int64, ok bool) {
	quotaMilli, ok = simulatedCPU(work)
	if !ok {
		return 0, 0, false
	}
	used, err := e.groupOfKey(keyOf(work.Attempt)).CPUTime()
	return used, quotaMilli, err == nil
}

// Resources returns the CPU time that an attempt of this node has used so far and its
// memory use in bytes. It returns false for an attempt that does not run here.
func (e *Executor) Resources(work compute.Work) (cpu time.Duration, memory int64, ok bool) {
	group := e.groupOfKey(keyOf(work.Attempt))
	cpu, err := group.CPUTime()
	if err != nil {
		return 0, 0, false
	}
	memory, err = group.Memory()
	return cpu, memory, err == nil
}

// groupOfKey returns the cgroup of a live attempt of this node.
func (e *Executor) groupOfKey(k key) *cgroup.Group {
	if a := e.attempt(k); a != nil {
		return e.groupOf(a)
	}
	return e.cgroups.Group(e.groupName(k))
}
