package node

import (
	"context"
	"sync"

	"berth/compute"
)

// turns lets one question be computed at a time. Of each organization only one
// stands in line, so that they are answered in turn: one that asks a lot waits
// for itself.
type turns struct {
	one chan struct{}

	mu    sync.Mutex
	lanes map[compute.OrgID]*lane // Of those that ask now.
}

// lane is where the questions of one organization wait for each other.
type lane struct {
	one   chan struct{}
	users int
}

func newTurns() *turns {
	return &turns{one: make(chan struct{}, 1), lanes: make(map[compute.OrgID]*lane)}
}

// take waits until it is the turn of a question of org, which done ends. The
// error is that of ctx.
func (t *turns) take(ctx context.Context, org compute.OrgID) (done func(), err error) {
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
		<-t.one // Before the lane: whoever stands in line comes first.
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

func (t *turns) enter(org compute.OrgID) *lane {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[org]
	if l == nil {
		l = &lane{one: make(chan struct{}, 1)}
		t.lanes[org] = l
	}
	l.users++
	return l
}

func (t *turns) exit(org compute.OrgID, l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.lanes, org)
	}
}
