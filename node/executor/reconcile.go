package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	protocol "berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/loop"
)

const (
	sourceRetry  = time.Second            // Delay after an error of the Source,
	contactRetry = 100 * time.Millisecond // and while the Source has no contact with the leader.
)

// key names an attempt.
type key struct {
	execution compute.ExecutionID
	epoch     uint64
}

func keyOf(a *compute.Attempt) key { return key{a.Execution, a.Epoch} }

// String returns the key as it is in the names of files and cgroups.
func (k key) String() string { return fmt.Sprintf("%s.%d", k.execution, k.epoch) }

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
	wanted := make(map[key]bool, len(assigned.Work))
	for _, w := range assigned.Work {
		k := keyOf(w.Attempt)
		wanted[k] = true
		if a := e.attempt(k); a != nil {
			e.stop(ctx, a, &w)
			if !w.Attempt.PreemptAt.IsZero() {
				a.preempt(w.Attempt.Notice)
			}
			a.warn(w.Execution)
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

// ends reports whether an attempt that is not live in the state has ended. A state
// from before the attempt's placement does not prove that. A state of a later epoch
// of the cluster does, even at a lower index, because no attempt of an earlier
// epoch is live in it.
func (s *Assigned) ends(a *attempt) bool {
	return s.Index >= a.placeIndex || s.Life > protocol.LifeOf(a.key.epoch)
}

func (e *Executor) attempt(k key) *attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.attempts[k]
}

// add adds the attempt to the live ones, and reports whether it was not there yet.
func (e *Executor) add(a *attempt) bool {
	e.mu.Lock()
	known := e.attempts[a.key] != nil
	if !known {
		e.attempts[a.key] = a
		e.metrics.live.Set(float64(len(e.attempts)))
	}
	e.mu.Unlock()
	if !known && e.cfg.Printing != nil {
		e.cfg.Printing(a.key.execution, a.key.epoch)
	}
	return !known
}

// MayPrint reports whether an attempt of this node may write more output: its end is
// not in the state yet.
func (e *Executor) MayPrint(execution compute.ExecutionID, epoch uint64) bool {
	k := key{execution, epoch}
	if e.attempt(k) != nil {
		return true
	}
	_, err := os.Lstat(filepath.Join(e.dir(k), reportedFile))
	return errors.Is(err, os.ErrNotExist) && !e.isNew(k)
}

func (e *Executor) forget(a *attempt) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.attempts, a.key)
	e.metrics.live.Set(float64(len(e.attempts)))
}

// begin runs a new attempt in its own goroutine. Its lease counts from the contact
// with the leader.
func (e *Executor) begin(ctx context.Context, w compute.Work, contact time.Duration) {
	a := &attempt{key: keyOf(w.Attempt), placeIndex: w.Attempt.PlaceIndex, seen: e.cfg.Now()}
	a.lease.Grace = protocol.LeaseOf(w.Execution)
	a.contact(contact)
	a.stopAs(w.Execution.Stop)
	if !w.Attempt.PreemptAt.IsZero() {
		a.preempt(w.Attempt.Notice)
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
