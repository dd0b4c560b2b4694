package edge

import (
	"sync"
	"time"

	"berth/compute"
)

// budget bounds a resource that a node has for all its clients, and the share
// of one owner. Resources are the bytes of larger request bodies from their
// arrival to their answer, those of larger answers until they are written, or
// streams.
type budget struct {
	limit int // For all owners together.
	share int // For one owner.

	mu sync.Mutex

	used int
	of   map[string]int // By owner.
}

func newBudget(limit, share int) *budget {
	return &budget{limit: limit, share: share, of: make(map[string]int)}
}

// take reserves n more for owner, if both limits allow it.
func (b *budget) take(owner string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit || b.of[owner]+n > b.share {
		return false
	}
	b.used += n
	b.of[owner] += n
	return true
}

// left returns how many more owner may reserve.
func (b *budget) left(owner string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(min(b.limit-b.used, b.share-b.of[owner]), 0)
}

// exhausted reports whether owner has its whole share.
func (b *budget) exhausted(owner string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.of[owner] >= b.share
}

// fits reports whether take would reserve n more for owner, or the whole share if
// that is less.
func (b *budget) fits(owner string, n int) bool {
	n = min(n, b.share)
	if !b.take(owner, n) {
		return false
	}
	b.give(owner, n)
	return true
}

// give returns n of owner.
func (b *budget) give(owner string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.of[owner] -= n; b.of[owner] <= 0 {
		delete(b.of, owner)
	}
}

// bodyHold is the part of a budget that a request has reserved for its body, or
// for that of its answer. The zero value has reserved nothing.
type bodyHold struct {
	budget  *budget
	owner   string
	bytes   int
	refusal func() error // Nil for errManyBodies.
}

// manyBytes is the code of errors about memory that the node does not have.
const manyBytes = "too_many_bytes"

// errManyBodies refuses a body that the node has no memory for.
func errManyBodies() error {
	return compute.Errorf(compute.CodeUnavailable,
		"This node holds too many large requests: repeat it later or at another node.").
		Named(manyBytes).Retry(time.Second)
}

// reserve makes the reservation at least n bytes, or refuses.
func (h *bodyHold) reserve(n int) error {
	more := n - h.bytes
	if more <= 0 {
		return nil
	}
	if !h.budget.take(h.owner, more) {
		if h.refusal != nil {
			return h.refusal()
		}
		return errManyBodies()
	}
	h.bytes = n
	return nil
}

// reserveUpToShare is reserve for something that may be larger than the share of
// one owner: then it takes the whole share.
func (h *bodyHold) reserveUpToShare(n int) error { return h.reserve(min(n, h.budget.share)) }

// shrink returns all but n bytes of the reservation.
func (h *bodyHold) shrink(n int) {
	if h.bytes > n {
		h.budget.give(h.owner, h.bytes-n)
		h.bytes = n
	}
}
