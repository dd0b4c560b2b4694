package api

import (
	"context"
	"sync"

	"berth/compute"
	"berth/fsm"
	"berth/loop"
)

// ending is the final record of the execution: nil if it was deleted, unknown
// with err.
type ending struct {
	e   *compute.Execution
	err error
}

// endings waits for the ends of executions, once for all streams of each.
type endings struct {
	mu  sync.Mutex
	all map[compute.ExecutionID]*awaited
}

// awaited is the end of an execution that streams wait for.
type awaited struct {
	streams int // Guarded by the mutex of endings.
	cancel  context.CancelFunc
	known   chan struct{} // Closed once end is set.
	end     ending
}

// awaitEnd returns the wait for the end of e, and a function to call once the caller
// waits no more.
func (c *core) awaitEnd(e *compute.Execution) (wait *awaited, release func()) {
	if e.Status.Terminal() {
		wait = &awaited{known: make(chan struct{}), end: ending{e: e}}
		close(wait.known)
		return wait, func() {}
	}
	c.endings.mu.Lock()
	defer c.endings.mu.Unlock()
	wait = c.endings.all[e.ID]
	if wait == nil {
		wait = c.watchEnd(e.ID)
	}
	wait.streams++
	return wait, func() { c.endings.release(e.ID, wait) }
}

// watchEnd begins to wait for the end of an execution. The caller holds the mutex.
func (c *core) watchEnd(id compute.ExecutionID) *awaited {
	ctx, cancel := context.WithCancel(context.Background()) // Outlives each stream; ends when the last one leaves.
	a := &awaited{cancel: cancel, known: make(chan struct{})}
	c.endings.all[id] = a
	go func() {
		defer close(a.known)
		a.end.e, a.end.err = c.next(ctx, id, func(now *compute.Execution) bool { return now.Status.Terminal() })
		c.endings.mu.Lock()
		defer c.endings.mu.Unlock()
		c.endings.forget(id, a) // After an error the next stream tries again.
	}()
	return a
}

// release ends the wait when its last stream leaves.
func (s *endings) release(id compute.ExecutionID, a *awaited) {
	s.mu.Lock()
	a.streams--
	last := a.streams == 0
	if last {
		s.forget(id, a)
		a.cancel()
	}
	s.mu.Unlock()
	if last {
		<-a.known
	}
}

// forget has later streams begin another wait. The caller holds the mutex.
func (s *endings) forget(id compute.ExecutionID, a *awaited) {
	if s.all[id] == a {
		delete(s.all, id)
	}
}

// next waits until want accepts the execution. It returns nil if the execution
// was deleted, and an error if ctx has ended or the execution's archive cannot be
// read.
func (c *core) next(
	ctx context.Context, id compute.ExecutionID, want func(*compute.Execution) bool,
) (*compute.Execution, error) {
	view, _, _ := c.cfg.Reader.Stale()
	for {
		known, err := c.awaitArchived(ctx, id, view)
		if err != nil {
			return nil, err
		}
		e, ok := known.AnyExecution(id)
		if !ok && view.Index() > 0 {
			return nil, nil
		}
		if ok && want(e) {
			return e, nil
		}
		loop.Sleep(ctx, waitPause)
		if view, err = c.cfg.Reader.Wait(ctx, view.Index()); err != nil {
			return nil, err
		}
	}
}

// awaitArchived adds the execution from its archive to view. It retries, because this
// node may have been partitioned.
func (c *core) awaitArchived(ctx context.Context, id compute.ExecutionID, view *fsm.View) (known *fsm.View, err error) {
	for range archiveTries {
		known, err = view.LoadArchived(compute.OrgID{}, id, c.OpenArchive(ctx))
		if err == nil || ctx.Err() != nil {
			break
		}
		loop.Sleep(ctx, archiveRetry)
	}
	return known, err
}
