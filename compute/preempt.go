package compute

import (
	"math"
	"time"
)

// What LatestEnd allows beside the time limit and the grace.
const (
	StartAllowance = time.Minute      // From the place to the start of the code.
	EndAllowance   = 15 * time.Second // From its last moment to the entry that says so.
)

// Ran returns for how long a has been running at now, both by the state's
// clock; 0 before its start was committed.
func (a *Attempt) Ran(now Instant) time.Duration {
	if a.StartedAt.IsZero() {
		return 0
	}
	return max(now.Sub(a.StartedAt), 0)
}

// Yields reports whether w may be preempted at now for work of a
// priority, having run for at least minRun.
func (w *Work) Yields(priority int, now Instant, minRun time.Duration) bool {
	e, a := w.Execution, w.Attempt
	return e.Preemptible && e.Priority < priority && e.Stop == StopNone &&
		!a.Ended && a.PreemptAt.IsZero() && a.Ran(now) >= minRun
}

// Leaves reports whether w was stopped or preempted.
func (w *Work) Leaves() bool { return w.Execution.Stop != StopNone || !w.Attempt.PreemptAt.IsZero() }

// LatestEnd returns when w has ended at the latest, reckoned from its placing
// by the state's clock. It is passed only by an attempt whose start took longer
// than its allowance, or whose node does not answer.
func (w *Work) LatestEnd() Instant {
	end := w.Execution.EndsBy(w.Attempt.PlacedAt)
	if a := w.Attempt; !a.PreemptAt.IsZero() {
		end = min(end, a.PreemptAt.Add(a.Notice+w.Execution.StopGrace+EndAllowance))
	}
	return end
}

// Never is later than any instant.
const Never = Instant(math.MaxInt64)

// EndsBy returns when e has ended at the latest if it gets a place at an
// instant; Never without a time limit.
func (e *Execution) EndsBy(placed Instant) Instant {
	if e.Timeout <= 0 {
		return Never
	}
	return placed.Add(StartAllowance + e.Timeout + e.StopGrace + EndAllowance)
}
