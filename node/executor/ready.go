package executor

import (
	"context"
	"os"

	"berth/compute"
	"berth/node/executor/supervise"
)

// setReady reports whether the code of an attempt is ready. One report at a time is
// under way, and the last one has the current value.
func (e *Executor) setReady(ctx context.Context, a *attempt, ready bool) {
	a.mu.Lock()
	busy := a.reporting
	a.ready, a.reporting = ready, true
	a.mu.Unlock()
	if busy {
		return
	}
	e.group.Go(func() {
		for {
			e.reportReady(ctx, a, ready)
			a.mu.Lock()
			if a.ready == ready || ctx.Err() != nil {
				a.reporting = false
				a.mu.Unlock()
				return
			}
			ready = a.ready
			a.mu.Unlock()
		}
	})
}

func (e *Executor) reportReady(ctx context.Context, a *attempt, ready bool) {
	report := compute.Readiness{Execution: a.key.execution, Epoch: a.key.epoch, Ready: ready}
	err := e.repeat(ctx, func(ctx context.Context) error { return e.reporter.SetReady(ctx, report) })
	if err != nil && ctx.Err() == nil {
		e.log.Warn("readiness refused", "execution", report.Execution, "attempt", report.Epoch, "err", err)
	}
}

// Ready reports whether the code of a live attempt is ready, as its supervisor says.
func (e *Executor) Ready(id compute.ExecutionID, epoch uint64) bool {
	a := e.attempt(key{id, epoch})
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

// DialPort connects to the port that the code of a live attempt serves.
func (e *Executor) DialPort(id compute.ExecutionID, epoch uint64) (*os.File, error) {
	return supervise.DialPort(e.dir(key{id, epoch}))
}
