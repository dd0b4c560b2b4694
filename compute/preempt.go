package compute

import (
	"math"
	"time"
)

// Allowances of LatestEnd beside the time limit and the grace.
const (
	StartAllowance = time.Minute      // From the placement to the start of the code.
	EndAllowance   = 15 * time.Second // From the end of the code to the committed entry.
)

// Ran returns how long a has been running at now, by the state's clock; 0
// before its start was committed.
func (a *Attempt) Ran(now Instant) time.Duration {
	if a.StartedAt.IsZero() {
		return 0
	}
	return max(now.Sub(a.StartedAt), 0)
}

// MayBePreempted reports whether w may be preempted at now by work of a priority,
// because it has run for at least minRun.
func (w *Work) MayBePreempted(priority int, now Instant, minRun time.Duration) bool {
	e, a := w.Execution, w.Attempt
	return e.Preemptible && e.Priority < priority && e.Stop == StopNone &&
		!a.Ended && a.PreemptAt.IsZero() && a.Ran(now) >= minRun
}

// Stopping reports whether w was stopped or preempted.
func (w *Work) Stopping() bool { return w.Execution.Stop != StopNone || !w.Attempt.PreemptAt.IsZero() }

// LatestEnd returns the latest expected end of w, counted from its placement by
// the state's clock. An attempt ends later only if its start took longer than
// its allowance, or if its node does not answer.
func (w *Work) LatestEnd() Instant {
	end := w.Execution.EndsBy(w.Attempt.PlacedAt)
	if a := w.Attempt; !a.PreemptAt.IsZero() {
		end = min(end, a.PreemptAt.Add(a.Notice+w.Execution.StopGrace+EndAllowance))
	}
	return end
}

// Never is later than any instant.
const Never = Instant(math.MaxInt64)

// EndsBy returns the latest expected end of e if it is placed at an instant;
// Never without a time limit.
func (e *Execution) EndsBy(placed Instant) Instant {
	if e.Timeout <= 0 {
		return Never
	}
	return placed.Add(StartAllowance + e.Timeout + e.StopGrace + EndAllowance)
}
