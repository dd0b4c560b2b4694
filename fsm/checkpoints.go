package fsm

import (
	"slices"
	"sync"

	"berth/compute"
)

const (
	checkpointEvery = 256 // Entries between two checkpoints.
	checkpointsKept = 16
)

// Checkpoint is the hash of the state after the entry Index.
type Checkpoint struct {
	Index uint64
	Hash  compute.Hash
}

// checkpointLog has the newest checkpoints. Every replica takes them at the same
// indexes, so that replicas can be compared while they apply entries.
type checkpointLog struct {
	mu          sync.Mutex
	checkpoints []Checkpoint // By index.
}

// record takes a checkpoint after an entry, if one is due.
func (b *checkpointLog) record(index uint64, hash func() compute.Hash) {
	if index%checkpointEvery != 0 {
		return
	}
	c := Checkpoint{index, hash()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoints = append(b.checkpoints[max(0, len(b.checkpoints)-checkpointsKept+1):], c)
}

// clear drops all checkpoints, after the state was replaced.
func (b *checkpointLog) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.checkpoints = nil
}

// Checkpoints returns the newest checkpoints of this replica, by index.
func (f *FSM) Checkpoints() []Checkpoint {
	f.checkpoints.mu.Lock()
	defer f.checkpoints.mu.Unlock()
	return slices.Clone(f.checkpoints.checkpoints)
}
