package executor

import (
	"context"
	"fmt"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/loop"
	"berth/node/executor/live"
)

// Requests ends the sending of requests to a replica, and returns those under way there.
type Requests func(ctx context.Context, replica compute.ExecutionID) UnderWay

// UnderWay is the requests to a replica that have not ended.
type UnderWay struct {
	Count int
	Known bool // All nodes that may send some have answered.
	Over  bool // None is waited for: the deadline of the drain of this node has passed.
}

// Times of a drain.
const (
	drainEvery = 100 * time.Millisecond
	drainBlind = 5 * time.Second // A node that does not answer for so long reaches no replica either.
)

// stop passes the stop of an execution on to its attempt. A replica that serves may first
// finish the requests that it has, unless its credits or the drain of its node are over.
func (e *Executor) stop(ctx context.Context, a *live.Attempt, w *compute.Work) {
	x := w.Execution
	serves := x.Drains() && x.ReadyAt > w.Attempt.PlacedAt
	if !serves || e.cfg.Requests == nil || e.cfg.DrainWait == 0 {
		a.StopAs(x.Stop)
		return
	}
	if !a.BeginDrain() {
		return
	}
	e.group.Go(func() {
		if e.drain(ctx, a); ctx.Err() == nil { // The next Run begins again.
			a.StopAs(compute.StopGraceful)
		}
	})
}

// drain waits for the end of the requests to a replica, at most for Config.DrainWait
// and while its code runs.
func (e *Executor) drain(ctx context.Context, a *live.Attempt) {
	begun, seen := boottime.Now(), boottime.Now()
	for noted := false; ctx.Err() == nil && e.live.Get(a.Key) == a && a.Stopped() == compute.StopNone; {
		left := e.cfg.Requests(ctx, a.Key.Execution)
		now := boottime.Now()
		if left.Known || left.Count > 0 {
			seen = now
		}
		switch {
		case left.Over:
			if left.Count > 0 {
				a.Note("requests are still under way at the deadline of the node's drain: it is stopped all the same")
			}
			return
		case left.Count == 0 && (left.Known || now-seen >= drainBlind):
			return
		case now-begun >= e.cfg.DrainWait:
			if left.Count > 0 {
				a.Note(fmt.Sprintf("requests are still under way after %s: it is stopped all the same", e.cfg.DrainWait))
			}
			return
		case left.Count > 0 && !noted:
			noted = true
			a.Note(fmt.Sprintf("it stops once its requests under way (%d) have ended, or in %s", left.Count, e.cfg.DrainWait))
		}
		loop.Sleep(ctx, drainEvery)
	}
}
