package loop

import (
	"context"
	"errors"
	"sync"
)

// ErrFull is returned to a computation that may not even wait: see Bound.
var ErrFull = errors.New("too many computations wait")

// FairLimiter lets a few costly computations run at a time, one of each owner. At most
// one of each owner waits in the common queue, so that owners alternate and one
// that asks a lot waits for itself. Its methods may be called concurrently.
type FairLimiter[K comparable] struct {
	running   chan struct{}
	all, each int // Computations that run or wait: see Bound.

	mu sync.Mutex

	users  int
	queues map[K]*queue // Owners with computations that run or wait.
}

// queue holds the waiting computations of one owner.
type queue struct {
	one   chan struct{}
	users int
}

// NewFairLimiter returns a limiter for so many computations at a time.
func NewFairLimiter[K comparable](most int) *FairLimiter[K] {
	const unbounded = 1 << 30
	return &FairLimiter[K]{
		running: make(chan struct{}, most), all: unbounded, each: unbounded, queues: make(map[K]*queue),
	}
}

// Bound limits how many computations run or wait, in all and of each owner, and
// returns l. It comes before the first Take.
func (l *FairLimiter[K]) Bound(all, each int) *FairLimiter[K] {
	l.all, l.each = all, each
	return l
}

// Take waits until a computation of owner may run; done ends it. The error is that of
// ctx, or ErrFull.
func (l *FairLimiter[K]) Take(ctx context.Context, owner K) (done func(), err error) {
	q := l.enter(owner)
	if q == nil {
		return nil, ErrFull
	}
	if err := hold(ctx, q.one); err != nil {
		l.exit(owner, q)
		return nil, err
	}
	if err := hold(ctx, l.running); err != nil {
		<-q.one
		l.exit(owner, q)
		return nil, err
	}
	return l.done(owner, q), nil
}

// TryTake is Take for a computation that does not wait.
func (l *FairLimiter[K]) TryTake(owner K) (done func(), ok bool) {
	q := l.enter(owner)
	if q == nil {
		return nil, false
	}
	select {
	case q.one <- struct{}{}:
	default:
		l.exit(owner, q)
		return nil, false
	}
	select {
	case l.running <- struct{}{}:
		return l.done(owner, q), true
	default:
		<-q.one
		l.exit(owner, q)
		return nil, false
	}
}

// done returns a function that ends a computation of owner.
func (l *FairLimiter[K]) done(owner K, q *queue) func() {
	return func() {
		<-l.running // Before the queue: other owners come first.
		<-q.one
		l.exit(owner, q)
	}
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

// enter counts one more computation of owner. It returns nil if there are too many.
func (l *FairLimiter[K]) enter(owner K) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[owner]
	if l.users >= l.all || q != nil && q.users >= l.each {
		return nil
	}
	l.users++
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
	l.users--
	if q.users--; q.users == 0 {
		delete(l.queues, owner)
	}
}
