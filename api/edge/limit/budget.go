package limit

import "sync"

// Budget bounds a resource that a node has for all its clients, and the share
// of one owner. Resources are the bytes of larger request bodies from their
// arrival to their answer, those of larger answers until they are written, or
// streams.
type Budget struct {
	limit int // For all owners together.
	share int // For one owner.

	mu sync.Mutex

	used int
	of   map[string]int // By owner.
}

// NewBudget returns a budget of limit, of which each owner may have share.
func NewBudget(limit, share int) *Budget {
	return &Budget{limit: limit, share: share, of: make(map[string]int)}
}

// Take reserves n more for owner, if both limits allow it.
func (b *Budget) Take(owner string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || b.of[owner]+n > b.share {
		return false
	}
	b.used += n
	b.of[owner] += n
	return true
}

// Share returns the share of one owner.
func (b *Budget) Share() int { return b.share }

// Left returns how many more owner may reserve.
func (b *Budget) Left(owner string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(min(b.limit-b.used, b.share-b.of[owner]), 0)
}

// Reserved returns how many all owners have reserved.
func (b *Budget) Reserved() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Exhausted reports whether owner has its whole share.
func (b *Budget) Exhausted(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[owner] >= b.share
}

// Fits reports whether Take would reserve n more for owner, or the whole share if
// that is less.
func (b *Budget) Fits(owner string, n int) bool {
	n = min(n, b.share)
	if !b.Take(owner, n) {
		return false
	}
	b.Give(owner, n)
	return true
}

// Give returns n of owner.
func (b *Budget) Give(owner string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.of[owner] -= n; b.of[owner] <= 0 {
		delete(b.of, owner)
	}
}
