package executor

import (
	"time"

	"berth/compute"
)

// SimulatedCPU returns the CPU time that an attempt of this node has used so
// far, and the thousandths of a core that its simulated GPUs stand for. It is
// false for an attempt that has no simulated GPU or is not alive here.
func (e *Executor) SimulatedCPU(work compute.Work) (used time.Duration, quotaMilli int64, ok bool) {
	quotaMilli, ok = simulatedCPU(work)
	if !ok {
		return 0, 0, false
	}
	used, err := e.cgroups.Group(e.groupName(keyOf(work.Attempt))).CPUTime()
	return used, quotaMilli, err == nil
}
