package loop

import (
	"context"
	"sync"
)

// FairLimiter lets a few costly computations run at a time, one of each owner. At most
// one of each owner waits in the common queue, so that owners alternate and one
// that asks a lot waits for itself. Its methods may be called concurrently.
type FairLimiter[K comparable] struct {
	running chan struct{}

	mu     sync.Mutex
	queues map[K]*queue // Of owners with open questions.
}

// queue holds the waiting computations of one owner.
type queue struct {
	one   chan struct{}
	users int
}

// NewFairLimiter returns a limiter for so many computations at a time.
func NewFairLimiter[K comparable](most int) *FairLimiter[K] {
	return &FairLimiter[K]{running: make(chan struct{}, most), queues: make(map[K]*queue)}
}

// Take waits until a computation of owner may run; done ends it. The error is that of
// ctx.
func (l *FairLimiter[K]) Take(ctx context.Context, owner K) (done func(), err error) {
	q := l.enter(owner)
	if err := hold(ctx, q.one); err != nil {
		l.exit(owner, q)
		return nil, err
	}
	if err := hold(ctx, l.running); err != nil {
		<-q.one
		l.exit(owner, q)
		return nil, err
	}
	return func() {
		<-l.running // Before the queue: other owners come first.
		<-q.one
		l.exit(owner, q)
	}, nil
}

// hold fills a place of a channel, unless ctx ends first.
func hold(ctx context.Context, places chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *FairLimiter[K]) enter(owner K) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[owner]
	if q == nil {
		q = &queue{one: make(chan struct{}, 1)}
		l.queues[owner] = q
	}
	q.users++
	return q
}

func (l *FairLimiter[K]) exit(owner K, q *queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(l.queues, owner)
	}
}
