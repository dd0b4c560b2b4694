package execution

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
func (g *executions) awaitEnd(e *compute.Execution) (wait *awaited, release func()) {
	if e.Status.Terminal() {
		wait = &awaited{known: make(chan struct{}), end: ending{e: e}}
		close(wait.known)
		return wait, func() {}
	}
	g.endings.mu.Lock()
	defer g.endings.mu.Unlock()
	wait = g.endings.all[e.ID]
	if wait == nil {
		wait = g.watchEnd(e.ID)
	}
	wait.streams++
	return wait, func() { g.endings.release(e.ID, wait) }
}

// watchEnd begins to wait for the end of an execution. The caller holds the mutex.
func (g *executions) watchEnd(id compute.ExecutionID) *awaited {
	ctx, cancel := context.WithCancel(context.Background()) // Outlives each stream; ends when the last one leaves.
	a := &awaited{cancel: cancel, known: make(chan struct{})}
	g.endings.all[id] = a
	go func() {
		defer close(a.known)
		a.end.e, a.end.err = g.next(ctx, id, func(now *compute.Execution) bool { return now.Status.Terminal() })
		g.endings.mu.Lock()
		defer g.endings.mu.Unlock()
		g.endings.forget(id, a) // After an error the next stream tries again.
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
func (g *executions) next(
	ctx context.Context, id compute.ExecutionID, want func(*compute.Execution) bool,
) (*compute.Execution, error) {
	view, _, _ := g.Config.Reader.Stale()
	for {
		known, err := g.awaitArchived(ctx, id, view)
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
		if view, err = g.Config.Reader.Wait(ctx, view.Index()); err != nil {
			return nil, err
		}
	}
}

// awaitArchived adds the execution from its archive to view. It retries, because this
// node may have been partitioned.
func (g *executions) awaitArchived(
	ctx context.Context, id compute.ExecutionID, view *fsm.View,
) (known *fsm.View, err error) {
	for range archiveTries {
		known, err = view.LoadArchived(compute.OrgID{}, id, g.OpenArchive(ctx))
		if err == nil || ctx.Err() != nil {
			break
		}
		loop.Sleep(ctx, archiveRetry)
	}
	return known, err
}
