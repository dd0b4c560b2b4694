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
