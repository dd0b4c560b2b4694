package fsm

import (
	"slices"
	"sync"

	"berth/compute"
)

const (
	checkpointEvery = 256 // Entries between two marks.
	checkpointsKept = 16
)

// Mark is the hash of the state after the entry Index.
type Mark struct {
	Index uint64
	Hash  compute.Hash
}

// markBook keeps the newest marks: every replica takes them at the same
// indexes, so that they can be compared while the replicas go on.
type checkpointLog struct {
	mu          sync.Mutex
	checkpoints []Mark // By index.
}

// note takes the mark of an entry that was applied, where one is due.
func (b *checkpointLog) record(index uint64, hash func() compute.Hash) {
	if index%checkpointEvery != 0 {
		return
	}
	mark := Mark{index, hash()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoints = append(b.checkpoints[max(0, len(b.checkpoints)-checkpointsKept+1):], mark)
}

// clear forgets all: another state took the place of this one.
func (b *checkpointLog) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoints = nil
}

// Marks returns the newest marks of this replica, by index.
func (f *FSM) Marks() []Mark {
	f.marks.mu.Lock()
	defer f.marks.mu.Unlock()
	return slices.Clone(f.marks.checkpoints)
}
