package limit

import "testing"

// TestGarbageIsCollected counts what large requests leave on the heap.
func TestGarbageIsCollected(t *testing.T) {
	var cycles, live uint64
	collected := 0
	g := &Garbage{
		cycles: func() uint64 { return cycles }, live: func() uint64 { return live },
		collect: func() { collected++ },
	}
	const half = maxGarbage / 2
	for i, step := range []struct {
		cycles uint64 // Collections that end before.
		live   uint64
		bytes  int
		want   int // Collections in all.
	}{
		{0, 0, half, 0},
		{0, 0, half, 0},
		{0, 0, 1, 1},
		{0, 0, maxGarbage, 1},
		{1, 0, 1, 2}, // It may have begun before the garbage was left.
		{0, 0, maxGarbage, 2},
		{2, 0, maxGarbage, 2},
		{0, 1 << 30, maxGarbage, 2}, // A large heap is collected less often.
		{0, 1 << 30, 1 << 29, 3},
	} {
		cycles += step.cycles
		live = step.live
		if g.Add(step.bytes); collected != step.want {
			t.Errorf("step %d: %d collections, want %d", i, collected, step.want)
		}
	}
}
