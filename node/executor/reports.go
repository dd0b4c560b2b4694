package executor

import (
	"context"
	"log/slog"
	"sync"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/live"
)

const maxSending = 32 // Outcomes sent concurrently.

// reports brings to the state what happens to attempts. It repeats each report until it is
// accepted or finally refused.
type reports struct {
	reporter Reporter
	outbox   *outbox
	calls    *live.Calls
	dirs     *live.Dirs
	group    *sync.WaitGroup // Run waits for it.
	log      *slog.Logger
	metrics  *metrics
}

// run reports the outcomes in the outbox until ctx ends. It retries each until it
// is accepted or finally refused.
func (r *reports) run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	sending, done := make(map[live.Key]bool), make(chan live.Key)
	for {
		list, waiting := r.outbox.waiting(sending, maxSending-len(sending))
		r.metrics.outbox.Set(float64(waiting))
		for _, outcome := range list {
			k := live.Key{Execution: outcome.Execution, Epoch: outcome.Epoch}
			sending[k] = true
			group.Go(func() {
				r.send(ctx, k, outcome)
				select {
				case done <- k:
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-r.outbox.wakeup:
		case k := <-done:
			delete(sending, k)
		}
	}
}

func (r *reports) send(ctx context.Context, k live.Key, outcome compute.Outcome) {
	fault.Point("executor.outbox.send")
	err := r.calls.Repeat(ctx, func(ctx context.Context) error { return r.reporter.FinishAttempt(ctx, outcome) })
	fault.Point("executor.outbox.sent")
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.log.Warn("outcome refused", "execution", k.Execution, "attempt", k.Epoch, "err", err)
	}
	if err := r.dirs.MarkReported(k); err != nil {
		r.log.Error("reported mark not persisted", "execution", k.Execution, "attempt", k.Epoch, "err", err)
	}
	fault.Point("executor.outbox.reported")
	if err := r.outbox.remove(k); err != nil {
		r.log.Error("outcome not removed", "execution", k.Execution, "attempt", k.Epoch, "err", err)
	}
	fault.Point("executor.outbox.removed")
}

// start reports that the code of an attempt was started.
func (r *reports) start(ctx context.Context, start compute.AttemptStart) {
	fault.Point("executor.start.report")
	err := r.calls.Repeat(ctx, func(ctx context.Context) error { return r.reporter.StartAttempt(ctx, start) })
	fault.Point("executor.start.reported")
	if err != nil && ctx.Err() == nil {
		r.log.Warn("start refused", "execution", start.Execution, "attempt", start.Epoch, "err", err)
	}
}

// ready reports whether the code of an attempt is ready. One report at a time is
// under way, and the last one has the current value.
func (r *reports) ready(ctx context.Context, a *live.Attempt, ready bool) {
	if !a.SetReady(ready) {
		return
	}
	r.group.Go(func() {
		for again := true; again; {
			r.readiness(ctx, a, ready)
			ready, again = a.ReadyReported(ready, ctx.Err() != nil)
		}
	})
}

func (r *reports) readiness(ctx context.Context, a *live.Attempt, ready bool) {
	report := compute.Readiness{Execution: a.Key.Execution, Epoch: a.Key.Epoch, Ready: ready}
	err := r.calls.Repeat(ctx, func(ctx context.Context) error { return r.reporter.SetReady(ctx, report) })
	if err != nil && ctx.Err() == nil {
		r.log.Warn("readiness refused", "execution", report.Execution, "attempt", report.Epoch, "err", err)
	}
}
