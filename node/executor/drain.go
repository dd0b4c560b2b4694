package executor

import (
	"context"
	"fmt"
	"time"

	"berth/boottime"
	"berth/compute"
	"berth/loop"
)

// Requests ends the sending of requests to a replica, and returns how many are still
// under way there. known is false when a node that may send some did not answer.
type Requests func(ctx context.Context, replica compute.ExecutionID) (underWay int, known bool)

// Times of a drain.
const (
	drainEvery = 100 * time.Millisecond
	drainBlind = 5 * time.Second // A node that does not answer for so long reaches no replica either.
)

// stop passes the stop of an execution on to its attempt. A replica that serves may first
// finish the requests that it has, unless its credits or the drain of its node are over.
func (e *Executor) stop(ctx context.Context, a *attempt, w *compute.Work) {
	x := w.Execution
	serves := x.Kind == compute.KindReplica && x.ReadyAt > w.Attempt.PlacedAt
	mayWait := e.cfg.Requests != nil && e.cfg.DrainWait > 0 && x.Stop == compute.StopGraceful &&
		x.Reason != compute.ReasonCredits && x.Reason != compute.ReasonDrained
	if !serves || !mayWait {
		a.stopAs(x.Stop)
		return
	}
	a.mu.Lock()
	begun := a.draining
	a.draining = true
	a.mu.Unlock()
	if begun {
		return
	}
	e.group.Go(func() {
		if e.drain(ctx, a); ctx.Err() == nil { // The next Run begins again.
			a.stopAs(compute.StopGraceful)
		}
	})
}

// drain waits for the end of the requests to a replica, at most for Config.DrainWait
// and while its code runs.
func (e *Executor) drain(ctx context.Context, a *attempt) {
	begun, seen := boottime.Now(), boottime.Now()
	for noted := false; ctx.Err() == nil && e.attempt(a.key) == a && a.stopped() == compute.StopNone; {
		underWay, known := e.cfg.Requests(ctx, a.key.execution)
		now := boottime.Now()
		if known || underWay > 0 {
			seen = now
		}
		switch {
		case underWay == 0 && (known || now-seen >= drainBlind):
			return
		case now-begun >= e.cfg.DrainWait:
			if underWay > 0 {
				a.note(fmt.Sprintf("requests are still under way after %s: it is stopped all the same", e.cfg.DrainWait))
			}
			return
		case underWay > 0 && !noted:
			noted = true
			a.note(fmt.Sprintf("it stops once its requests under way (%d) have ended, or in %s", underWay, e.cfg.DrainWait))
		}
		loop.Sleep(ctx, drainEvery)
	}
}

// note writes a line to the output of the attempt.
func (a *attempt) note(text string) {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Note(text) // If the supervisor has exited, listen notices it.
	}
}
