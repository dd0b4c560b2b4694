package executor

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/inputs"
	"berth/node/executor/journal"
	"berth/node/executor/live"
	"berth/node/executor/prepare"
)

// maxDetail limits an outcome's detail, in bytes.
const maxDetail = 512

// failedStart returns the outcome of an attempt whose code never started.
func (e *Executor) failedStart(a *live.Attempt, err error) compute.Outcome {
	outcome := compute.Outcome{
		Execution: a.Key.Execution, Epoch: a.Key.Epoch,
		Status: compute.StatusSystemFailure, Reason: compute.ReasonStartFailed, Detail: err.Error(),
		ExecletAt: compute.InstantOf(a.Seen), EndedAt: compute.InstantOf(e.cfg.Now()),
	}
	switch {
	case errors.Is(err, live.ErrStopped) && a.Stopped() == compute.StopHard:
		outcome.Status, outcome.Reason = compute.StatusAborted, compute.ReasonAborted
	case errors.Is(err, live.ErrStopped):
		outcome.Status, outcome.Reason = compute.StatusCancelled, compute.ReasonStopped
	case errors.Is(err, live.ErrPreempted):
		outcome.Reason = compute.ReasonPreempted
	case errors.Is(err, live.ErrCutOff):
		outcome.Reason = compute.ReasonNodeLost
	case errors.Is(err, inputs.ErrUnread):
		outcome.Reason = compute.ReasonInputsLost
	case errors.Is(err, prepare.ErrModel):
		outcome.Status = compute.StatusFailed
	case errors.Is(err, prepare.ErrImage):
		outcome.Status, outcome.Reason = compute.StatusFailed, compute.ReasonImage
	case errors.Is(err, prepare.ErrPackages):
		outcome.Status, outcome.Reason = compute.StatusFailed, compute.ReasonPackages
	case compute.CodeOf(err) == compute.CodeInvalid && e.preparer.HasPython():
		// The user's file names are invalid: the system did not fail.
		outcome.Status = compute.StatusFailed
	}
	if e, ok := errors.AsType[*compute.Error](err); ok {
		outcome.Detail = e.Message
	}
	return outcome
}

// lost returns the outcome of an attempt whose code may have been started and
// whose supervisor is dead or does not answer. Only its end is certain.
func (e *Executor) lost(k live.Key, state journal.State, detail string) compute.Outcome {
	now := compute.InstantOf(e.cfg.Now())
	outcome := compute.Outcome{
		Execution: k.Execution, Epoch: k.Epoch,
		Status: compute.StatusSystemFailure, Reason: compute.ReasonSupervisorLost,
		Detail:    strings.TrimSuffix("what watched the code was killed, or its record lost: "+detail, ": "),
		ExecletAt: state.ExecletAt, StartedAt: state.StartedAt, EndedAt: now,
	}
	return outcome
}

// ending is how an attempt ended.
type ending struct {
	compute.Outcome

	journaled bool // The attempt's journal has on disk all of it that cannot be found out again.
}

// concludeWithOutputs stores the outputs of the attempt before it concludes it, so
// that they are durable when the state has its end. It returns false when ctx ends
// before: the next process does it.
func (e *Executor) concludeWithOutputs(ctx context.Context, a *live.Attempt, end ending) bool {
	if e.dirs.LeftOutputs(a.Key) && !e.outbox.has(a.Key) {
		end.Outputs, end.journaled = e.outputs.keep(ctx, a), false // Their files are removed.
		if ctx.Err() != nil {
			return false
		}
	}
	e.conclude(a, end)
	return true
}

// conclude makes the outcome durable and removes the files that only a live
// attempt needs. The removed spec contains the secrets of its environment.
func (e *Executor) conclude(a *live.Attempt, end ending) {
	end.Detail = compute.Clip(end.Detail, maxDetail)
	if e.cfg.Meter != nil {
		if end.Ran {
			e.watch(a, nil, end.StartedAt) // The end may arrive before the start.
		}
		supervised := end.Usage
		e.cfg.Meter.Measure(&end.Outcome)
		end.journaled = end.journaled && reflect.DeepEqual(end.Usage, supervised)
	}
	outcome := end.Outcome
	fault.Point("executor.conclude.begin")
	if err := os.MkdirAll(e.dirs.Dir(a.Key), 0o700); err != nil {
		e.log.Error("attempt directory not created", "execution", a.Key.Execution, "attempt", a.Key.Epoch, "err", err)
	}
	if err := e.outbox.put(outcome, end.journaled); err != nil {
		// It is still reported. If this process ends before, the next one has the journal.
		e.log.Error("outcome not persisted", "execution", a.Key.Execution, "attempt", a.Key.Epoch, "err", err)
	}
	e.dirs.Clean(a.Key)
	fault.Point("executor.conclude.clean")
	e.metrics.ended.WithLabelValues(outcome.Status.String(), outcome.Reason.String()).Inc()
	e.log.Info("attempt ended", "execution", a.Key.Execution, "attempt", a.Key.Epoch,
		"status", outcome.Status.String(), "took", outcome.Duration)
}

// watch records the attempt's work or the start of its code. Once both are known,
// it starts measuring the attempt's GPUs.
func (e *Executor) watch(a *live.Attempt, w *compute.Work, started compute.Instant) {
	if work, from, begin := a.Measure(w, started); begin && e.cfg.Meter != nil {
		e.cfg.Meter.Watch(*work, from)
	}
}
