package node

import (
	"testing"

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
// while it leaves much garbage, and is small again some time after.
func TestBusyNodesLeaveMoreGarbage(t *testing.T) {
	const mib = 1 << 20
	p := gcTarget{percent: restPercent}
	for i, step := range []struct {
		cycles, live uint64
		want         int
	}{
		{1, 20 * mib, restPercent},
		{2, 20 * mib, 160},
		{2, 20 * mib, 160},
		{2, 2 * mib, busyPercent},
		{0, 0, busyPercent},
		{0, 20 * mib, 160},
		{0, 20 * mib, 160},
		{0, 20 * mib, 160},
		{0, 20 * mib, restPercent},
		{9, 200 * mib, restPercent},
		{9, 20 * mib, 160},
		{9, 10 * mib, 320},
	} {
		before := p.percent
		if changed := p.follow(step.cycles, step.live); p.percent != step.want || changed != (before != step.want) {
			t.Errorf("step %d: %d percent, changed: %t, want %d", i, p.percent, changed, step.want)
		}
	}
}
