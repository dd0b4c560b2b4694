package fsm

import (
	"slices"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/charge"
	"berth/fsm/format"
)

// again is why an execution waits for another attempt instead of ending.
type again struct {
	ended compute.Reason // Why its attempt ended.
	waits compute.Reason // Why it waits; one of those that executions wait for.
	note  string         // Why the attempt is free or charged later, for the ledger.
}

// free returns w for an attempt that is never charged.
func (w again) free() again {
	w.note = "free: " + w.note
	return w
}

// owed returns w for an attempt that is charged when the execution has ended.
func (w again) owed() again {
	w.note += " by the organization's own work: charged at the end"
	return w
}

// requeue ends a live attempt, as a system failure, and puts its execution back to
// where it was in the queue. The attempt is not charged: its hold is released, with the
// reason. A new hold is taken, which covers the time that e owes.
func (s *execution) requeue(a compute.Attempt, e *compute.Execution, why again) {
	s.placement.leave(&a, e)
	a.Status, a.Reason = compute.StatusSystemFailure, why.ended
	s.statistics.tallyEnd(&a, e, a.Status, a.Reason)
	s.view.putAttempt(&a)
	e.Accept()
	e.Status, e.Reason = compute.StatusQueued, why.waits
	e.PlacedAt, e.ExecletAt, e.StartedAt, e.EndedAt = 0, 0, 0, 0
	e.Estimate = nil // It was of the first start.
	unready(e, s.view.meta.Now)
	s.money.post(compute.LedgerEntry{
		Org: e.Org, Kind: compute.LedgerRelease, Amount: e.Held,
		Execution: e.ID, Epoch: e.Epoch, Note: why.note,
	})
	e.Held = 0
	s.money.hold(e, charge.FirstHold(e), "queued again") // At most the released amount, or as much as owe allowed.
	s.putExecution(e)
}

// goesOn has the execution of a live attempt that ended so wait for another
// one, if it may have one, and reports whether it does. Below format 3 only
// attempts that made room had another.
func (s *execution) goesOn(a compute.Attempt, e *compute.Execution, end attempt.Ending) bool {
	if yielded(&a, e, end.Status, end.Reason) {
		s.requeue(a, e, afterPreemption(e).free())
		return true
	}
	if s.view.Format() < format.Trust {
		return false
	}
	switch attempt.Decide(e, &a, end) {
	case attempt.Moved:
		e.Stop = compute.StopNone
		s.requeue(a, e, afterDrain().free())
		return true
	case attempt.Retried:
		e.Retries++
	case attempt.Elsewhere:
		e.Avoid = append(slices.Clone(e.Avoid), a.Node)
	case attempt.Ends:
		return false
	}
	why := again{ended: end.Reason, waits: compute.ReasonRetry, note: "system failure, " + end.Reason.String()}
	s.requeue(a, e, why.free())
	return true
}

// retriesOfRuns returns how often each run of a GPU selection may start again.
func (s *execution) retriesOfRuns(parent *compute.Execution) int {
	if s.view.Format() < format.Trust {
		return 0
	}
	return max(parent.MaxRetries, attempt.SelectionRetries)
}
