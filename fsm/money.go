package fsm

import (
	"math/bits"
	"time"

	"berth/compute"
	"berth/fault"
)

// How credits are set aside for an execution.
const (
	holdFirst  = time.Hour        // Its worst case up to this at submit,
	holdMore   = 10 * time.Minute // then this at a time while it runs,
	holdMargin = time.Minute      // when no more than this is left.

	growSweep = 10_000 // Holds that one Tick makes grow at most.
)

// costs returns what e costs at most if its time limit were limit: that time
// and the grace in which its code has to end, within its ceiling.
func costs(e *compute.Execution, limit time.Duration) compute.Credits {
	amount := e.Price.Charge(limit + e.StopGrace)
	if e.MaxCredits > 0 {
		amount = min(amount, e.MaxCredits)
	}
	return amount
}

// worst returns what e costs at most.
func worst(e *compute.Execution) compute.Credits { return costs(e, e.Timeout) }

// firstHold returns what is set aside for e when it is submitted.
func firstHold(e *compute.Execution) compute.Credits {
	return costs(e, min(e.Timeout, holdFirst))
}

// buys returns for how long credits last at a price, to the millisecond and
// never longer than limit.
func buys(credits compute.Credits, price compute.Price, limit time.Duration) time.Duration {
	if price <= 0 {
		return limit
	}
	hi, lo := bits.Mul64(uint64(max(credits, 0)), 1000)
	if hi >= uint64(price) {
		return limit
	}
	ms, _ := bits.Div64(hi, lo, uint64(price))
	if ms > uint64(limit.Milliseconds()) {
		return limit
	}
	return time.Duration(ms) * time.Millisecond
}

// lacks refuses to set aside more than an organization has, unless credits are
// only metered.
func (s *money) lacks(org compute.OrgID, amount compute.Credits) *compute.Error {
	available := s.Account(org).Available()
	if s.meta.Settings.Meter && s.Account(org).Held <= maxAmount-amount || amount <= available {
		return nil
	}
	return compute.Errorf(compute.CodeForbidden,
		"credits exhausted: this may cost up to %s credits, %s are available",
		amount, max(available, 0)).Named("credits_exhausted")
}

// hold sets credits of e's organization aside. The caller stores e.
func (s *money) hold(e *compute.Execution, amount compute.Credits, note string) {
	if amount <= 0 {
		return
	}
	e.Held += amount
	s.post(compute.LedgerEntry{
		Org: e.Org, Kind: compute.LedgerHold, Amount: amount,
		Execution: e.ID, Epoch: e.Epoch, Note: note,
	})
}

// settle gives back what is set aside for e and charges what it owes, which
// is never more. The caller stores e, which has its final status.
func (s *money) settle(e *compute.Execution) {
	owed, note := owes(e)
	released := e.Held
	e.Held = 0
	if released > 0 || owed == 0 && e.Kind != compute.KindSelection {
		s.post(compute.LedgerEntry{
			Org: e.Org, Kind: compute.LedgerRelease, Amount: released,
			Execution: e.ID, Epoch: e.Epoch, Note: note,
		})
	}
	if charged := min(owed, released); charged > 0 {
		e.Billed = charged
		charge := compute.LedgerEntry{
			Org: e.Org, Kind: compute.LedgerCharge, Amount: charged,
			Execution: e.ID, Epoch: e.Epoch, Note: note,
		}
		s.post(charge)
		if fault.Planted(fault.DoubleCharge) {
			s.post(charge)
		}
	}
}

// owes returns what the time of e's code costs, and why.
func owes(e *compute.Execution) (compute.Credits, string) {
	switch {
	case e.Kind == compute.KindSelection:
		return 0, "free: no sub-execution was created"
	case e.Status == compute.StatusSystemFailure:
		return 0, "free: system failure, " + e.Reason.String()
	case !e.Ran || e.Duration <= 0:
		return 0, "free: the code never ran"
	}
	return e.Price.Charge(e.Duration), "code ran " + e.Duration.Truncate(time.Millisecond).String()
}

// growHolds sets more aside for executions that run longer than what is set
// aside for them, and stops those whose organization has no more. Those that
// have waited longest come first; what is over the bound waits for the next
// Tick, for which there is the margin.
func (s *money) growHolds() {
	for _, m := range s.growing.FirstKeys(growSweep) {
		if m.at > s.meta.Now {
			return
		}
		known, _ := s.executions.Get(m.execution())
		e := *known
		wanted := costs(&e, min(s.meta.Now.Sub(e.PlacedAt)+holdMore, e.Timeout)) - e.Held
		if s.lacks(e.Org, wanted) == nil {
			s.hold(&e, wanted, "still running")
		} else {
			e.Stop, e.Reason = compute.StopGraceful, compute.ReasonCredits
			e.Detail = "the organization's credits are exhausted"
		}
		s.execution.putExecution(&e)
	}
}

// grows reports whether more will have to be set aside for e.
func grows(e *compute.Execution) bool {
	return (e.Status == compute.StatusStarting || e.Status == compute.StatusRunning) &&
		e.Stop == compute.StopNone && e.Timeout > holdFirst &&
		e.Kind != compute.KindSelection && e.Held < worst(e)
}

// growsAt returns when that has to be: the margin before nothing but the grace
// is left of what is set aside.
func growsAt(e *compute.Execution) compute.Instant {
	return e.PlacedAt.Add(buys(e.Held, e.Price, e.Timeout+e.StopGrace) - e.StopGrace - holdMargin)
}
