package objects

import (
	"context"
	"sync"

	"berth/compute"
)

// places counts chunks in memory, also by organization. Its methods are safe
// for concurrent use.
type places struct {
	share int

	mu sync.Mutex

	free    int
	of      map[compute.OrgID]int
	changed chan struct{} // Closed when one is given back.
}

func newPlaces(all, share int) *places {
	return &places{share: max(1, share), free: all, of: make(map[compute.OrgID]int), changed: make(chan struct{})}
}

// take waits for a place. The caller calls give at its end.
func (p *places) take(ctx context.Context, org compute.OrgID) (give func(), err error) {
	for {
		changed, ok := p.try(org)
		if ok {
			return sync.OnceFunc(func() { p.give(org) }), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// try takes a place if there is one. Otherwise it returns a channel that is closed at the
// next change.
func (p *places) try(org compute.OrgID) (changed <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == 0 || p.of[org] >= p.share {
		return p.changed, false
	}
	p.free--
	p.of[org]++
	return nil, true
}

func (p *places) give(org compute.OrgID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free++
	if p.of[org]--; p.of[org] == 0 {
		delete(p.of, org)
	}
	close(p.changed)
	p.changed = make(chan struct{})
}
