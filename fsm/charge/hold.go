package charge

import (
	"time"

	"berth/compute"
)

// Times of holds.
const (
	holdFirst  = time.Hour        // The worst case is held up to this at submit,
	HoldMore   = 10 * time.Minute // then extended by this while it runs,
	HoldMargin = time.Minute      // when no more than this is left.
)

// UpTo returns the largest cost of e if its time limit were limit: the time that it
// owes, the limit and the grace for its code to end, within its ceiling.
func UpTo(e *compute.Execution, limit time.Duration) compute.Credits {
	amount := e.Price.Charge(e.Owed + limit + e.StopGrace)
	if e.MaxCredits > 0 {
		amount = min(amount, e.MaxCredits)
	}
	return amount
}

// Worst returns the largest cost of e.
func Worst(e *compute.Execution) compute.Credits { return UpTo(e, e.Timeout) }

// FirstHold returns the hold of e at submit. It covers the time limit, but at most
// holdFirst, or HoldMore for a replica.
func FirstHold(e *compute.Execution) compute.Credits {
	first := holdFirst
	if e.Kind == compute.KindReplica {
		first = HoldMore
	}
	return UpTo(e, min(e.Timeout, first))
}

// Grows reports whether the hold of e will have to be extended while it runs.
func Grows(e *compute.Execution) bool { return e.Stop == compute.StopNone && MayGrow(e) }

// GrowsWhileDraining reports whether the hold of e will have to be extended while it drains.
func GrowsWhileDraining(e *compute.Execution) bool { return e.Drains() && MayGrow(e) }

// MayGrow reports whether more can be held for e than is.
func MayGrow(e *compute.Execution) bool {
	return (e.Status == compute.StatusStarting || e.Status == compute.StatusRunning) &&
		e.Timeout > holdFirst && !e.Kind.IsParent() && e.Held < Worst(e)
}

// GrowsAt returns when the hold of e has to be extended: the margin before only
// the grace is left of it.
func GrowsAt(e *compute.Execution) compute.Instant {
	return e.PlacedAt.Add(e.Price.Buys(e.Held, e.Owed+e.Timeout+e.StopGrace) - e.Owed - e.StopGrace - HoldMargin)
}
