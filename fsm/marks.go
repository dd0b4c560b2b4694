package fsm

import (
	"slices"
	"sync"

	"berth/compute"
)

const (
	markEvery = 256 // Entries between two marks.
	marksKept = 16
)

// Mark is the hash of the state after the entry Index.
type Mark struct {
	Index uint64
	Hash  compute.Hash
}

// markBook keeps the newest marks: every replica takes them at the same
// indexes, so that they can be compared while the replicas go on.
type markBook struct {
	mu    sync.Mutex
	marks []Mark // By index.
}

// note takes the mark of an entry that was applied, where one is due.
func (b *markBook) note(index uint64, hash func() compute.Hash) {
	if index%markEvery != 0 {
		return
	}
	mark := Mark{index, hash()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = append(b.marks[max(0, len(b.marks)-marksKept+1):], mark)
}

// clear forgets all: another state took the place of this one.
func (b *markBook) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = nil
}

// Marks returns the newest marks of this replica, by index.
func (f *FSM) Marks() []Mark {
	f.marks.mu.Lock()
	defer f.marks.mu.Unlock()
	return slices.Clone(f.marks.marks)
}
