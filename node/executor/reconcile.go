package executor

import (
	"context"
	"time"

	protocol "berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/loop"
	"berth/node/executor/live"
)

const (
	sourceRetry  = time.Second            // Delay after an error of the Source,
	contactRetry = 100 * time.Millisecond // and while the Source has no contact with the leader.
)

// reconcile makes the live attempts match the state until ctx ends. It is
// level-triggered: it compares whole states, never changes.
func (e *Executor) reconcile(ctx context.Context) {
	var after uint64
	for {
		assigned, err := e.source.Work(ctx, after)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.log.Warn("assignments not read", "err", err)
			loop.Sleep(ctx, sourceRetry)
			continue
		}
		e.match(ctx, assigned)
		if assigned.Contact != 0 {
			after = assigned.Index // Without contact nothing could start, so everything is read again.
		}
		if assigned.Contact == 0 || boottime.Now()-assigned.Contact > protocol.NodeTTL {
			loop.Sleep(ctx, contactRetry) // Such a Source returns at once, so the loop waits here.
		}
	}
}

// match starts new attempts, passes on stops and preemptions, and stops attempts
// that are not live in the state.
func (e *Executor) match(ctx context.Context, assigned Assigned) {
	wanted := make(map[live.Key]bool, len(assigned.Work))
	for _, w := range assigned.Work {
		k := live.KeyOf(w.Attempt)
		wanted[k] = true
		if a := e.live.Get(k); a != nil {
			e.stop(ctx, a, &w)
			if !w.Attempt.PreemptAt.IsZero() {
				a.Preempt(w.Attempt.Notice)
			}
			a.Warn(w.Execution, e.cfg.Now())
			e.watch(a, &w, 0)
			continue
		}
		if assigned.Contact != 0 && e.dirs.IsNew(k) {
			e.begin(ctx, w, assigned.Contact)
		}
	}
	for _, a := range e.live.All() {
		if !wanted[a.Key] && assigned.ends(a) {
			a.StopAs(compute.StopHard)
		}
	}
}

// ends reports whether an attempt that is not live in the state has ended. A state
// from before the attempt's placement does not prove that. A state of a later epoch
// of the cluster does, even at a lower index, because no attempt of an earlier
// epoch is live in it.
func (s *Assigned) ends(a *live.Attempt) bool {
	return s.Index >= a.PlaceIndex || s.Life > protocol.LifeOf(a.Key.Epoch)
}

// add adds the attempt to the live ones, and reports whether it was not there yet.
func (e *Executor) add(a *live.Attempt) bool {
	added := e.live.Add(a)
	if added && e.cfg.Printing != nil {
		e.cfg.Printing(a.Key.Execution, a.Key.Epoch)
	}
	return added
}

// begin runs a new attempt in its own goroutine. Its lease counts from the contact
// with the leader.
func (e *Executor) begin(ctx context.Context, w compute.Work, contact time.Duration) {
	a := live.NewAttempt(live.KeyOf(w.Attempt), w.Attempt.PlaceIndex, e.cfg.Now(), protocol.LeaseOf(w.Execution))
	a.Contact(contact)
	a.StopAs(w.Execution.Stop)
	if !w.Attempt.PreemptAt.IsZero() {
		a.Preempt(w.Attempt.Notice)
	}
	e.watch(a, &w, 0)
	if !e.add(a) {
		return
	}
	e.group.Go(func() {
		if e.start(ctx, a, w) {
			e.live.Remove(a)
		}
	})
}
