package node

import (
	"context"
	"os"
	"runtime"
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
	restPercent = 100 // Percent of the heap in use: the runtime's own default.
	busyPercent = 400 // The most of a busy node,
	busyGarbage = 48 << 20
	busyPeriod  = time.Second      // which would collect so often at restPercent.
	calmPeriod  = 10 * time.Second // Time without a collection until a node is no longer busy.
)

// tuneRuntime keeps the process small while clients have it hold all that their
// limits allow, and while it is busy lets it leave more garbage and wake less often.
// The operator's GOMEMLIMIT and GOGC come first.
func (n *Node) tuneRuntime(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { n.tuneThreads(ctx) })
	if os.Getenv("GOMEMLIMIT") == "" {
		parts.Go(func() {
			loop.Every(ctx, memoryPeriod, func() { debug.SetMemoryLimit(memoryLimit(n.machine.View().Summary())) })
		})
	}
	if os.Getenv("GOGC") == "" {
		parts.Go(func() { tuneGC(ctx, n.heap) })
	}
	return nil
}

// tuneGC makes garbage collections rarer while there is much garbage, and has a busy node's
// heap in huge pages. It runs after each collection, so that a node at rest is not woken.
func tuneGC(ctx context.Context, heap *heapArea) {
	target, last := gcTarget{percent: restPercent}, time.Now() //nolint:forbidigo // A stopwatch.
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	collected := make(chan struct{}, 1)
	awaitGC(ctx, collected)
	heap.useHuge(true) // A start is work too.
	calm := time.NewTimer(calmPeriod)
	defer calm.Stop()
	for {
		var changed bool
		select {
		case <-ctx.Done():
			return
		case <-calm.C:
			changed = target.rest()
			heap.useHuge(false)
		case <-collected:
			metrics.Read(live)
			changed = target.follow(time.Since(last), live[0].Value.Uint64())
			last = time.Now() //nolint:forbidigo // A stopwatch.
			calm.Reset(calmPeriod)
			if target.busy {
				heap.useHuge(true)
			}
		}
		if changed {
			debug.SetGCPercent(target.percent)
		}
	}
}

// awaitGC signals garbage collections until ctx ends.
func awaitGC(ctx context.Context, collected chan<- struct{}) {
	type garbage struct{ _ *int } // With a pointer, so that it is an allocation of its own.
	runtime.AddCleanup(new(garbage), func(collected chan<- struct{}) {
		if ctx.Err() != nil {
			return
		}
		select {
		case collected <- struct{}{}:
		default: // The signal before is still pending.
		}
		awaitGC(ctx, collected)
	}, collected)
}

// gcTarget is how much garbage may lie on the heap, in percent of the bytes in use.
type gcTarget struct {
	percent int
	busy    bool // Collections would come more than once a busyPeriod at restPercent.
}

// follow changes the target after a collection that came so long after the one before and
// found so many bytes in use. It reports whether it did.
func (t *gcTarget) follow(after time.Duration, live uint64) (changed bool) {
	want := restPercent
	t.busy = after*restPercent <= busyPeriod*time.Duration(t.percent)
	if t.busy {
		want = int(min(max(restPercent, 100*busyGarbage/max(live, 1)), busyPercent))
	}
	changed = want != t.percent
	t.percent = want
	return changed
}

// rest changes the target to that of a node at rest, and reports whether it did.
func (t *gcTarget) rest() (changed bool) {
	changed = t.percent != restPercent
	t.percent, t.busy = restPercent, false
	return changed
}

// memoryLimit returns the soft limit of memory for a node with a state.
func memoryLimit(state fsm.Summary) int64 {
	return clientMemory + executionMemory*int64(state.Executions) + entryMemory*int64(state.Entries)
}
