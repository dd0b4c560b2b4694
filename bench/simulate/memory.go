package simulate

import (
	"runtime"

	"berth/fsm/command"
	"berth/scheduler"
)

// Memory is the heap use of the state machine and the Packer, in bytes after
// garbage collection.
type Memory struct {
	PerNode   float64 `json:"per_node_bytes"`
	PerQueued float64 `json:"per_queued_execution_bytes"`
	PeakHeap  uint64  `json:"peak_heap_bytes"` // Heap of the whole process, with garbage and the simulation itself.
}

// Limits of the number of executions queued to measure one. Within them it is
// the number simulated.
const (
	weighedLeast = 500
	weighedMost  = 5_000
)

// weigh measures the memory of a node and of a queued execution, on a separate
// cluster. The work comes from a copy of the source, which does not advance.
func weigh(c *Config, f *fleet, from *source) (Memory, error) {
	copied := from.copied(3)
	before := heapInUse()
	w, err := newWorld(f, from.organizations(), c.Now)
	if err != nil {
		return Memory{}, err
	}
	packer := scheduler.NewPacker()
	packer.Pack(w.machine.View())
	nodes := heapInUse()
	accepted, err := fill(w, copied, min(max(c.Executions, weighedLeast), weighedMost))
	if err != nil {
		return Memory{}, err
	}
	queued := heapInUse()
	out := Memory{PerNode: float64(int64(nodes)-int64(before)) / float64(len(f.nodes))}
	if accepted > 0 {
		out.PerQueued = float64(int64(queued)-int64(nodes)) / float64(accepted)
	}
	runtime.KeepAlive(w)
	runtime.KeepAlive(packer)
	return out, nil
}

// fill queues n executions and returns how many were accepted.
func fill(w *world, from *source, n int) (accepted int, err error) {
	var commands []command.Command
	for range n {
		a := from.take()
		commands = append(commands, w.submit(&a))
	}
	results, err := w.commit(commands)
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		if r.Refusal == nil {
			accepted++
		}
	}
	return accepted, nil
}

// heapInUse returns the bytes of live objects.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC() // Collects memory that finalizers held in the first run.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
