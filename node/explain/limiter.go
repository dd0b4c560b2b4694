package explain

import (
	"context"
	"sync"

	"berth/compute"
)

// limiter is a fair limiter: it lets one question be computed at a time. At most
// one question of each organization is in the common queue, so that organizations
// take turns and one that asks a lot waits for itself.
type limiter struct {
	one chan struct{}

	mu     sync.Mutex
	queues map[compute.OrgID]*queue // Of organizations with open questions.
}

// queue holds the waiting questions of one organization.
type queue struct {
	one   chan struct{}
	users int
}

func newLimiter() *limiter {
	return &limiter{one: make(chan struct{}, 1), queues: make(map[compute.OrgID]*queue)}
}

// take waits for the turn of a question of org; done ends the turn. The error is
// that of ctx.
func (t *limiter) take(ctx context.Context, org compute.OrgID) (done func(), err error) {
	l := t.enter(org)
	if err := hold(ctx, l.one); err != nil {
		t.exit(org, l)
		return nil, err
	}
	if err := hold(ctx, t.one); err != nil {
		<-l.one
		t.exit(org, l)
		return nil, err
	}
	return func() {
		<-t.one // Before the queue: other organizations come first.
		<-l.one
		t.exit(org, l)
	}, nil
}

// hold fills a channel of size one, unless ctx ends first.
func hold(ctx context.Context, one chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case one <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *limiter) enter(org compute.OrgID) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.queues[org]
	if l == nil {
		l = &queue{one: make(chan struct{}, 1)}
		t.queues[org] = l
	}
	l.users++
	return l
}

func (t *limiter) exit(org compute.OrgID, l *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.queues, org)
	}
}
