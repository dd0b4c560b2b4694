package node

import (
	"runtime"
	"testing"
	"time"

	"berth/fsm"
)

// TestMemoryFollowsTheState checks that a large state has the memory that it takes
// several times over, and a small one little more than what clients may hold.
func TestMemoryFollowsTheState(t *testing.T) {
	const finished, entry = 1 << 10, 200 // About what one takes, in bytes.
	if got := memoryLimit(fsm.Summary{}); got > 128<<20 {
		t.Errorf("an empty state has %d MiB", got>>20)
	}
	large := fsm.Summary{Executions: 1_000_000, Entries: 2_000_000}
	if got, want := memoryLimit(large), int64(4*(1_000_000*finished+2_000_000*entry)); got < want {
		t.Errorf("a large state has %d MiB, want %d", got>>20, want>>20)
	}
}

// TestBusyNodesLeaveMoreGarbage checks that a node with little in use collects less often
// while it leaves much garbage, and as usual at rest.
func TestBusyNodesLeaveMoreGarbage(t *testing.T) {
	const mib = 1 << 20
	p := gcTarget{percent: restPercent}
	for i, step := range []struct {
		after time.Duration
		live  uint64
		want  int
	}{
		{2 * time.Second, 20 * mib, restPercent},
		{time.Second, 20 * mib, 240},
		{2 * time.Second, 20 * mib, 240},
		{2 * time.Second, 2 * mib, busyPercent},
		{4 * time.Second, 40 * mib, 120},
		{1300 * time.Millisecond, 40 * mib, restPercent},
		{0, 200 * mib, restPercent},
		{0, 0, busyPercent},
		{time.Minute, 0, restPercent},
	} {
		before := p.percent
		if changed := p.follow(step.after, step.live); p.percent != step.want || changed != (before != step.want) {
			t.Errorf("step %d: %d percent, changed: %t, want %d", i, p.percent, changed, step.want)
		}
	}
	if p.follow(0, mib); !p.rest() || p.percent != restPercent || p.rest() {
		t.Errorf("at rest it has %d percent", p.percent)
	}
}

// TestCollectionsAreNoticed checks that garbage collections are signaled.
func TestCollectionsAreNoticed(t *testing.T) {
	collected := make(chan struct{}, 1)
	awaitGC(t.Context(), collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}
