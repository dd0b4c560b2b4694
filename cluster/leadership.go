package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/raftconf"
	"berth/compute"
	"berth/fault"
	"berth/loop"
)

const (
	openingTimeout = 5 * time.Second        // To commit a term's first entry.
	openingRetry   = 50 * time.Millisecond  // Between tries.
	leaderWait     = 5 * time.Second        // How long requests wait for a leader.
	leaderPoll     = 100 * time.Millisecond // Longest time between polls; jittered.
)

// leaderWatch wakes waiters when the leader may have changed.
type leaderWatch struct {
	observations chan raft.Observation // Buffered for one: only the fact of a change counts.

	mu      sync.Mutex
	changed chan struct{} // Closed at the next change.
}

func newLeaderWatch() *leaderWatch {
	return &leaderWatch{
		observations: make(chan raft.Observation, 1),
		changed:      make(chan struct{}),
	}
}

// observe registers with raft. The observer does not block, since raft would wait
// for it.
func (w *leaderWatch) observe(r *raft.Raft) {
	r.RegisterObserver(raft.NewObserver(w.observations, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	}))
}

// run passes changes on until ctx ends.
func (w *leaderWatch) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.observations:
			w.wake()
		}
	}
}

func (w *leaderWatch) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
}

// next returns a channel that is closed at the next change.
func (w *leaderWatch) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

// Leader returns the leader as this node knows it, false when it knows none.
func (c *Cluster) Leader() (compute.NodeID, bool) {
	if c.isWorker() {
		return c.upstream.leading()
	}
	if c.raft == nil {
		return compute.NodeID{}, false
	}
	_, id := c.raft.LeaderWithID()
	node := raftconf.NodeOf(id)
	return node, !node.IsZero() && c.catchUp.heardRecently()
}

// IsLeader reports whether this node believes that it leads. A newer leader may
// exist; see ReadIndex.
func (c *Cluster) IsLeader() bool { return c.raft != nil && c.raft.State() == raft.Leader }

// Term returns the newest term that this node knows.
func (c *Cluster) Term() uint64 { return c.raft.CurrentTerm() }

// awaitChange waits briefly, or until the leader may have changed. It returns an
// error when ctx ends or the node stops.
func (c leadership) awaitChange(ctx context.Context, changed <-chan struct{}) error {
	timer := time.NewTimer(leaderPoll/4 + rand.N(leaderPoll*3/4))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-c.closed:
		return errStopping()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// errNoLeader refuses a request that found no leader in time.
func errNoLeader() *compute.Error {
	return compute.Errorf(compute.CodeUnavailable, "The cluster has no leader at the moment.").
		Named("no_leader").Retry(time.Second)
}

func errStopping() *compute.Error {
	return compute.Errorf(compute.CodeUnavailable, "This node is stopping.").Retry(time.Second)
}

// term is one term in which this node leads and is ready to.
type term struct {
	number uint64
	ctx    context.Context //nolint:containedctx // It ends with the term.
}

// terms publishes the term in which this node leads.
type terms struct {
	mu      sync.Mutex
	current *term
	changed chan struct{} // Closed at the next change.
}

func newTerms() *terms { return &terms{changed: make(chan struct{})} }

func (t *terms) set(current *term) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = current
	close(t.changed)
	t.changed = make(chan struct{})
}

func (t *terms) get() (*term, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.current, t.changed
}

// ready returns the term in which this node leads and has committed its
// opening entry, 0 when there is none.
func (t *terms) ready() uint64 {
	current, _ := t.get()
	if current == nil {
		return 0
	}
	return current.number
}

// leadership opens and ends the terms in which this node leads.
type leadership struct{ *Cluster }

// lead opens and ends terms as raft reports. LeaderCh keeps only the newest value,
// so two trues in a row mean that a term was lost and another won. So every value
// ends the term before, and a new one begins only after that.
func (c leadership) lead(ctx context.Context) error {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case won := <-c.raft.LeaderCh():
			end()
			end = func() {}
			if won {
				end = c.beginTerm(ctx)
			}
		}
	}
}

// beginTerm opens the term in the background and returns the function that ends it.
func (c leadership) beginTerm(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var opening sync.WaitGroup
	opening.Go(func() {
		number, err := c.openTerm(ctx)
		if err != nil {
			return // The term ended before it was open.
		}
		fault.Point("cluster.term.opened")
		c.heartbeats.startTerm()
		c.clock.Begin(c.cfg.StateTime()) // All entries of earlier terms are applied.
		c.clock.Steer()
		c.metrics.terms.Inc()
		c.raftNode.setTimeouts(true)
		c.logger.Info("leadership acquired", "term", number)
		c.terms.set(&term{number: number, ctx: ctx})
	})
	return func() {
		cancel()
		opening.Wait()
		c.raftNode.setTimeouts(false)
		if current, _ := c.terms.get(); current != nil {
			c.logger.Info("leadership lost", "term", current.number)
			c.terms.set(nil)
		}
	}
}

// openTerm commits the term's first entry: the preamble alone, or an empty one.
// Once it is applied, everything committed in earlier terms is too. It is a
// command and no barrier, so that the state machine sees it: the search from the
// commit index for an applied entry never goes back further.
func (c leadership) openTerm(ctx context.Context) (uint64, error) {
	for {
		number := c.raft.CurrentTerm()
		fault.Point("cluster.term.open")
		err := c.raft.Apply(c.preamble(number), openingTimeout).Error()
		c.refusals.note(time.Now(), err) //nolint:forbidigo // A stopwatch.
		c.commits.Committed()
		if err == nil && c.raft.CurrentTerm() == number && c.IsLeader() {
			return number, nil
		}
		if !c.IsLeader() {
			return 0, fmt.Errorf("open term %d: %w", number, raft.ErrNotLeader)
		}
		if !loop.Sleep(ctx, openingRetry) {
			return 0, ctx.Err()
		}
	}
}

// preamble returns the frame in front of an entry of the term, nil for none.
func (c leadership) preamble(number uint64) []byte {
	if c.cfg.Preamble == nil {
		return nil
	}
	return c.cfg.Preamble(number, c.clock.Stamp())
}

// WhileLeader calls fn in each term in which this node leads, until ctx ends or fn
// fails during its term, and returns that error. fn's context ends with the term.
// The next call waits for fn to return, so the terms of one caller never overlap.
// Commands that fn proposes must carry the term: only the state machine can refuse
// the late commands of a former leader that was paused.
func (c *Cluster) WhileLeader(ctx context.Context, fn func(ctx context.Context, term uint64) error) error {
	for {
		current, changed := c.terms.get()
		if current != nil {
			if err := c.leadership.whileTerm(ctx, current, fn); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// whileTerm calls fn with a context that ends with ctx or the term.
func (c leadership) whileTerm(ctx context.Context, t *term, fn func(context.Context, uint64) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(t.ctx, cancel) //nolint:contextcheck // The other of the two.
	defer stop()
	if err := fn(inner, t.number); err != nil && inner.Err() == nil {
		return err
	}
	return nil
}
