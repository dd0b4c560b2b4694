package fair

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is returned to a request that may not even wait.
var ErrFull = errors.New("too many requests wait")

// Gate lets as many requests in as there are places, and makes the others wait in a
// Queue. Its methods may be called concurrently.
type Gate[K comparable] struct {
	most    int // Requests that wait.
	crowded func()

	mu sync.Mutex

	queue  Queue[K]
	places int
	inside int
	seen   int64 // Average cost of requests that ended; 0 for none.
	costs  map[K]int64
}

// maxCosts bounds the owners whose average is known.
const maxCosts = 4096

// NewGate returns a gate without places, where up to so many requests wait. It calls
// crowded when a request begins to wait.
func NewGate[K comparable](most int, crowded func()) *Gate[K] {
	return &Gate[K]{most: most, crowded: crowded, costs: make(map[K]int64)}
}

// Enter waits until a place is free. An owner may have as many requests wait as are free
// in the queue, so that nobody fills it for all others. The caller calls leave once, with
// the cost of the request; 0 if that is not known. The error is that of ctx, or ErrFull.
func (g *Gate[K]) Enter(ctx context.Context, owner K, estimate int64) (leave func(cost int64), err error) {
	g.mu.Lock()
	switch {
	case g.inside < g.places && g.queue.Len() == 0:
		g.inside++
		g.mu.Unlock()
		return g.leaving(owner), nil
	case g.queue.Len()+g.queue.LenOf(owner) >= g.most: // More of its own wait than are free.
		g.mu.Unlock()
		return nil, ErrFull
	}
	t := g.queue.Push(owner, g.expect(owner, estimate))
	t.admitted = make(chan struct{})
	g.mu.Unlock()
	g.crowded()
	select {
	case <-t.admitted:
		return g.leaving(owner), nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.queue.Remove(t) { // It was let in at this moment.
		g.inside--
		g.admit()
	}
	return nil, ctx.Err()
}

// expect returns the expected cost of a request: the average of its owner's requests, or
// else of everybody's, but no more than the estimate.
func (g *Gate[K]) expect(owner K, estimate int64) int64 {
	average, ok := g.costs[owner]
	if !ok {
		average = g.seen
	}
	if average == 0 {
		return estimate
	}
	return min(estimate, average)
}

// leaving returns the function by which a request leaves.
func (g *Gate[K]) leaving(owner K) func(cost int64) {
	left := false
	return func(cost int64) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if left {
			return
		}
		left = true
		if cost > 0 {
			g.learn(owner, cost)
		}
		g.inside--
		g.admit()
	}
}

// learn moves averages towards a cost.
func (g *Gate[K]) learn(owner K, cost int64) {
	const weight = 8
	average, ok := g.costs[owner]
	if !ok && len(g.costs) >= maxCosts {
		for some := range g.costs {
			delete(g.costs, some)
			break
		}
	}
	if !ok {
		average = cost
	}
	g.costs[owner] = max((average*(weight-1)+cost)/weight, 1)
	if g.seen == 0 {
		g.seen = cost
	}
	g.seen = max((g.seen*(weight-1)+cost)/weight, 1)
}

// admit lets in the next requests while there are places.
func (g *Gate[K]) admit() {
	for g.inside < g.places {
		t := g.queue.Pop()
		if t == nil {
			return
		}
		g.inside++
		close(t.admitted)
	}
}

// SetPlaces sets how many requests may be inside at once. Those above it stay.
func (g *Gate[K]) SetPlaces(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.places = n
	g.admit()
}

// State returns how many requests are inside and how many wait.
func (g *Gate[K]) State() (inside, waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside, g.queue.Len()
}
