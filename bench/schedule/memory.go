package schedule

import (
	"context"
	"errors"
	"runtime"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/scheduler"
)

// framesPerEntry is the number of commands per entry in the memory measurement.
const framesPerEntry = 200

// measureMemory fills a separate state machine, without Raft, and returns the
// heap growth for each record.
func measureMemory(ctx context.Context, cfg Config) (Memory, error) {
	l := newLoad(cfg)
	m := &replica{machine: fsm.New(), clock: l.clock}
	if err := m.apply(ctx, l.founding(compute.NodeID{UUID: l.uuid()})); err != nil {
		return Memory{}, err
	}
	heap := []int64{heapBytes()}
	if err := m.addNodes(ctx, l); err != nil {
		return Memory{}, err
	}
	heap = append(heap, heapBytes())
	packer := scheduler.NewPacker()
	packer.Pack(m.machine.View())
	heap = append(heap, heapBytes())
	const batch = 10_000
	for done := 0; done < cfg.Queued; done += batch {
		if err := m.apply(ctx, l.submits(min(batch, cfg.Queued-done), uint64(done))); err != nil {
			return Memory{}, err
		}
	}
	heap = append(heap, heapBytes())
	packer.Pack(m.machine.View())
	heap = append(heap, heapBytes())
	runtime.KeepAlive(packer)
	runtime.KeepAlive(m)
	return Memory{
		PerNode:            (heap[1] - heap[0]) / int64(cfg.Nodes),
		SchedulerPerNode:   (heap[2] - heap[1]) / int64(cfg.Nodes),
		PerQueued:          (heap[3] - heap[2]) / int64(cfg.Queued),
		SchedulerPerQueued: (heap[4] - heap[3]) / int64(cfg.Queued),
	}, nil
}

// heapBytes returns the used heap after garbage collection.
func heapBytes() int64 {
	runtime.GC()
	runtime.GC() // Frees memory that finalizers and pools released.
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// replica is a state machine without Raft.
type replica struct {
	machine *fsm.FSM
	clock   func(term uint64) []byte
	index   uint64
}

// addNodes creates the simulated nodes. Their commands are garbage afterwards.
func (m *replica) addNodes(ctx context.Context, l *load) error {
	tokens, registrations, inventories := l.nodes()
	for _, cmds := range [][]command.Command{tokens, registrations, inventories} {
		if err := m.apply(ctx, cmds); err != nil {
			return err
		}
	}
	return nil
}

// apply applies commands, many per entry. The state must accept all.
func (m *replica) apply(ctx context.Context, cmds []command.Command) error {
	for len(cmds) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		frames := [][]byte{m.clock(1)}
		for _, cmd := range cmds[:min(framesPerEntry, len(cmds))] {
			if c, ok := cmd.(command.SetInventory); ok {
				c.Term = 1
				cmd = c
			}
			frames = append(frames, mustEncode(cmd))
		}
		cmds = cmds[len(frames)-1:]
		m.index++
		var refusals []error
		for _, result := range m.machine.ApplyFrames(m.index, frames...) {
			if result.Refusal != nil {
				refusals = append(refusals, result.Refusal)
			}
		}
		if err := errors.Join(refusals...); err != nil {
			return err
		}
	}
	return nil
}
