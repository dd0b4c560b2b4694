package node

import (
	"sync"
	"time"

	"berth/compute"
	"berth/node/executor"
)

// gpuLoads says how busy simulated GPUs are: by how much of the CPU that
// stands for them their attempts used since the last sample.
type gpuLoads struct {
	work func() []compute.Work
	now  func() time.Time

	mu sync.Mutex

	executor *executor.Executor // nil until it is open.
	last     map[gpuHolder]cpuMark
}

// gpuHolder is one device as one attempt holds it.
type gpuHolder struct {
	gpu       compute.GPUID
	execution compute.ExecutionID
	epoch     uint64
}

// cpuMark is the CPU time that an attempt had used at a moment.
type cpuMark struct {
	at   time.Time
	used time.Duration
}

// of returns the load of a device, 0 to 1, since it was last asked for.
func (l *gpuLoads) of(id compute.GPUID) float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.executor == nil {
		return 0
	}
	now, total := l.now(), 0.0
	seen := map[gpuHolder]cpuMark{}
	for _, w := range l.work() {
		milli := shareOf(w.Attempt, id)
		used, quota, ok := l.executor.SimulatedCPU(w)
		if milli == 0 || !ok || quota == 0 {
			continue
		}
		holder, mark := gpuHolder{id, w.Attempt.Execution, w.Attempt.Epoch}, cpuMark{now, used}
		seen[holder] = mark
		if before, ok := l.last[holder]; ok && now.After(before.at) {
			busy := (used - before.used).Seconds() / now.Sub(before.at).Seconds() / (float64(quota) / 1000)
			total += min(busy, 1) * float64(milli) / compute.WholeGPU
		}
	}
	l.replace(id, seen)
	return min(total, 1)
}

// use names the executor, once it is open.
func (l *gpuLoads) use(e *executor.Executor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.executor = e
}

// replace keeps the marks of the attempts that hold the device now.
func (l *gpuLoads) replace(id compute.GPUID, seen map[gpuHolder]cpuMark) {
	for holder := range l.last {
		if holder.gpu == id {
			delete(l.last, holder)
		}
	}
	for holder, mark := range seen {
		l.last[holder] = mark
	}
}

// shareOf returns the thousandths of a device that an attempt holds.
func shareOf(a *compute.Attempt, id compute.GPUID) int {
	for _, share := range a.GPUs {
		if share.GPU == id {
			return share.Milli
		}
	}
	return 0
}
