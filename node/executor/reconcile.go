package executor

import (
	"context"
	"fmt"
	"time"

	protocol "berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/loop"
)

const (
	sourceRetry  = time.Second            // How long a failed Source is left alone,
	contactRetry = 100 * time.Millisecond // and one that has no contact with the leader.
)

// key names an attempt.
type key struct {
	execution compute.ExecutionID
	epoch     uint64
}

func keyOf(a *compute.Attempt) key { return key{a.Execution, a.Epoch} }

// String returns the key as file and group names have it.
func (k key) String() string { return fmt.Sprintf("%s.%d", k.execution, k.epoch) }

// reconcile makes what is alive here match what the state says, again and
// again until ctx ends. It acts on the whole of it, never on the change.
func (e *Executor) reconcile(ctx context.Context) {
	var after uint64
	for {
		assigned, err := e.source.Work(ctx, after)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			e.log.Warn("read own attempts", "err", err)
			loop.Sleep(ctx, sourceRetry)
			continue
		}
		e.match(ctx, assigned)
		if assigned.Contact != 0 {
			after = assigned.Index // Else all is read again, since nothing of it could begin.
		}
		if assigned.Contact == 0 || boottime.Now()-assigned.Contact > protocol.NodeTTL {
			loop.Sleep(ctx, contactRetry) // A Source that has to read everything again does not wait for a change.
		}
	}
}

// match starts what is new, stops what is to stop, and ends what the state no
// longer knows as alive.
func (e *Executor) match(ctx context.Context, assigned Assigned) {
	wanted := make(map[key]bool, len(assigned.Work))
	for _, w := range assigned.Work {
		k := keyOf(w.Attempt)
		wanted[k] = true
		if a := e.attempt(k); a != nil {
			a.stopAs(w.Execution.Stop)
			if !w.Attempt.PreemptAt.IsZero() {
				a.yield(w.Attempt.Notice)
			}
			e.watch(a, &w, 0)
			continue
		}
		if assigned.Contact != 0 && e.isNew(k) {
			e.begin(ctx, w, assigned.Contact)
		}
	}
	for _, a := range e.snapshot() {
		if !wanted[a.key] && assigned.ends(a) {
			a.stopAs(compute.StopHard)
		}
	}
}

// ends reports whether an attempt that the state does not have as live has ended
// in it. A state from before the attempt was placed knows nothing of it, but one
// of a later life of the cluster does: nothing of the life before lives in it, also
// where it begins at a lower index.
func (s *Assigned) ends(a *attempt) bool {
	return s.Index >= a.placeIndex || s.Life > protocol.LifeOf(a.key.epoch)
}

func (e *Executor) attempt(k key) *attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attempts[k]
}

// add makes the attempt one of the living, and reports whether it was not.
func (e *Executor) add(a *attempt) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.attempts[a.key] != nil {
		return false
	}
	e.attempts[a.key] = a
	e.metrics.live.Set(float64(len(e.attempts)))
	return true
}

func (e *Executor) forget(a *attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.attempts, a.key)
	e.metrics.live.Set(float64(len(e.attempts)))
}

// begin lives a new attempt in a goroutine of its own. Its lease counts from a
// contact with the leader.
func (e *Executor) begin(ctx context.Context, w compute.Work, contact time.Duration) {
	a := &attempt{key: keyOf(w.Attempt), placeIndex: w.Attempt.PlaceIndex, seen: e.cfg.Now()}
	a.lease.Grace = protocol.LeaseOf(w.Execution)
	a.contact(contact)
	a.stopAs(w.Execution.Stop)
	if !w.Attempt.PreemptAt.IsZero() {
		a.yield(w.Attempt.Notice)
	}
	e.watch(a, &w, 0)
	if !e.add(a) {
		return
	}
	e.group.Go(func() {
		if e.start(ctx, a, w) {
			e.forget(a)
		}
	})
}
