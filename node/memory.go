package node

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"berth/fsm"
	"berth/loop"
)

// Memory of the Go runtime, in bytes, from which on garbage is collected more often
// than usual. The limit is meant for clients, so a state's memory is estimated generously.
const (
	clientMemory    = 104 << 20 // For a node with an empty state.
	executionMemory = 16 << 10  // For an execution; a finished one takes 1 KiB, its indexes included.
	entryMemory     = 1 << 10   // For an entry of a ledger.
	memoryPeriod    = 10 * time.Second
)

// Garbage that may lie on the heap. A busy node with little in use would collect it several
// times a second, which took a sixth of the processor time of its answers.
const (
	restPercent   = 100 // Percent of the heap in use: the runtime's own default.
	busyPercent   = 400 // The most of a busy node,
	busyGarbage   = 32 << 20
	busyCycles    = 2 // which would collect so often in garbagePeriod at restPercent.
	garbagePeriod = 2 * time.Second
	calmPeriods   = 5 // Periods with little garbage until a node is no longer busy.
)

// boundMemory keeps the process small while clients have it hold all that their
// limits allow, and lets it leave more garbage while it is busy. The operator's
// GOMEMLIMIT and GOGC come first.
func (n *Node) boundMemory(ctx context.Context) error {
	var both sync.WaitGroup
	defer both.Wait()
	if os.Getenv("GOMEMLIMIT") == "" {
		both.Go(func() {
			loop.Every(ctx, memoryPeriod, func() { debug.SetMemoryLimit(memoryLimit(n.machine.View().Summary())) })
		})
	}
	if os.Getenv("GOGC") == "" {
		both.Go(func() { tuneGC(ctx) })
	}
	return nil
}

// tuneGC makes garbage collections rarer while there is much garbage.
func tuneGC(ctx context.Context) {
	target, last := gcTarget{percent: restPercent}, uint64(0)
	sample := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}, {Name: "/gc/heap/live:bytes"}}
	loop.Every(ctx, garbagePeriod, func() {
		metrics.Read(sample)
		cycles, live := sample[0].Value.Uint64(), sample[1].Value.Uint64()
		if target.follow(cycles-last, live) {
			debug.SetGCPercent(target.percent)
		}
		last = cycles
	})
}

// gcTarget is how much garbage may lie on the heap.
type gcTarget struct {
	percent int // Percent of the bytes in use.
	calm    int // Periods since there was much garbage.
}

// follow changes the target after so many collections in a period, the last of which found
// so many bytes in use, and reports whether it did.
func (t *gcTarget) follow(cycles, live uint64) (changed bool) {
	want := int(min(max(restPercent, 100*busyGarbage/max(live, 1)), busyPercent))
	if t.calm++; cycles*uint64(t.percent) >= busyCycles*restPercent {
		t.calm = 0
	}
	if t.percent == restPercent && t.calm > 0 || t.calm >= calmPeriods {
		want = restPercent
	}
	changed = want != t.percent
	t.percent = want
	return changed
}

// memoryLimit returns the soft limit of memory for a node with a state.
func memoryLimit(state fsm.Summary) int64 {
	return clientMemory + executionMemory*int64(state.Executions) + entryMemory*int64(state.Entries)
}
