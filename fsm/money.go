package fsm

import (
	"time"

	"berth/compute"
	"berth/fault"
	"berth/fsm/charge"
	"berth/fsm/format"
	"berth/fsm/store"
)

// growSweep is how many holds one Tick extends at most.
const growSweep = 10_000

// lacks refuses to hold more for e than its organization has, unless credits are only
// metered, and more than a ceiling leaves.
func (s *money) lacks(e *compute.Execution, amount compute.Credits) *compute.Error {
	if refusal := s.overBudget(e, amount); refusal != nil {
		return refusal
	}
	available := s.view.Account(e.Org).Available()
	if s.view.meta.Settings.Meter && s.view.Account(e.Org).Held <= maxAmount-amount || amount <= available {
		return nil
	}
	return compute.Errorf(compute.CodeForbidden,
		"credits exhausted: this may cost up to %s credits, %s are available",
		amount, max(available, 0)).Named("credits_exhausted")
}

// hold holds credits of e's organization. The caller stores e.
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

// settle releases the hold of e and charges its cost, which is never more. The
// caller stores e, which has its final status.
func (s *money) settle(e *compute.Execution) {
	owed, note := charge.For(e)
	e.ProviderCost = s.providerCost(e)
	released := e.Held
	e.Held = 0
	if released > 0 || owed == 0 && !e.Kind.IsParent() {
		s.post(compute.LedgerEntry{
			Org: e.Org, Kind: compute.LedgerRelease, Amount: released,
			Execution: e.ID, Epoch: e.Epoch, Note: note,
		})
	}
	if charged := min(owed, released); charged > 0 {
		e.Billed = charged
		s.spend(e, charged)
		line := compute.LedgerEntry{
			Org: e.Org, Kind: compute.LedgerCharge, Amount: charged,
			Execution: e.ID, Epoch: e.Epoch, Note: note,
		}
		s.post(line)
		if fault.Planted(fault.DoubleCharge) {
			s.post(line)
		}
	} else if released > charge.FirstHold(e) { // It was extended, which may have been reported.
		s.reportFree(e)
	}
}

// growHolds extends the holds of executions that run longer than their hold
// covers, warns those that no further whole extension is paid for, and stops those
// for which nothing is left. The most overdue come first. Those beyond the bound wait
// for the next Tick; the margin allows for it. Half of the margin is left at a stop, so
// that work which could never be extended is warned too.
func (s *money) growHolds() {
	extended := s.growHoldsOf(s.view.growing)
	if s.view.Format() >= format.Drains {
		extended = append(extended, s.growHoldsOf(s.view.draining)...)
	}
	s.reportRunning(extended)
}

// growHoldsOf is growHolds of those in an index. It returns those whose holds it extended.
func (s *money) growHoldsOf(index store.Index[timeKey, compute.Execution]) (extended []*compute.Execution) {
	for _, m := range index.FirstKeys(growSweep) {
		if m.at > s.view.meta.Now {
			break
		}
		known, _ := s.view.executions.Get(m.execution())
		e := *known
		wanted := charge.UpTo(&e, min(s.view.meta.Now.Sub(e.PlacedAt)+charge.HoldMore, e.Timeout)) - e.Held
		if more := s.extension(&e, wanted); more > 0 || s.lacks(&e, wanted) == nil {
			s.hold(&e, more, "still running")
			s.warn(&e)
			extended = append(extended, &e)
		} else if s.view.Format() >= format.Rotation && s.view.meta.Now < charge.GrowsAt(&e).Add(charge.HoldMargin/2) {
			if !e.CreditsEnd.IsZero() {
				continue // It was warned, and has time left.
			}
			s.warn(&e)
		} else {
			e.Stop, e.Reason = compute.StopGraceful, compute.ReasonCredits
			e.Detail = s.whyLacks(&e, wanted)
			if who, b := s.ceilingOf(&e, wanted); b != nil {
				s.reportStop(&e, who)
			}
		}
		s.execution.putExecution(&e)
		if known.Stop == compute.StopNone && e.Stop != compute.StopNone {
			s.deployment.stopUnpaidOf(&e)
		}
	}
	return extended
}

// extension returns by how much the hold of e is extended: by the amount that is wanted,
// else by what credits and ceilings leave, if that buys more time from now. Below
// format.Rotation there was only the whole amount.
func (s *money) extension(e *compute.Execution, wanted compute.Credits) compute.Credits {
	if s.lacks(e, wanted) == nil {
		return wanted
	}
	left := wanted
	if !s.view.meta.Settings.Meter {
		left = min(left, s.view.Account(e.Org).Available())
	}
	for _, who := range spendersOf(e) {
		if b, ok := s.view.budgets.Get(who); ok && b.Enforce {
			charged, held := s.view.Spent(b)
			left = min(left, b.MaxCredits-charged-held)
		}
	}
	longer := *e
	longer.Held += left
	if s.view.Format() < format.Rotation || left <= 0 || s.lacks(e, left) != nil ||
		charge.GrowsAt(&longer) <= s.view.meta.Now {
		return 0
	}
	return left
}

// whyLacks says why no more can be held for e.
func (s *money) whyLacks(e *compute.Execution, amount compute.Credits) string {
	if _, b := s.ceilingOf(e, amount); b != nil {
		return ceilingName(b) + " reached"
	}
	return "the organization's credits are exhausted"
}

// warn records on an execution when its credits are expected to end, if they, or a
// ceiling, do not pay for another extension of its hold. Below format 10 only replicas of
// services were warned.
func (s *money) warn(e *compute.Execution) {
	if e.Kind != compute.KindReplica && s.view.Format() < format.Accounts {
		return
	}
	if !e.CreditsEnd.IsZero() || e.Kind == compute.KindReplica {
		e.CreditsEnd, e.Detail = 0, ""
	}
	more := e.Price.Charge(charge.HoldMore)
	if e.Kind != compute.KindReplica {
		more = min(more, charge.Worst(e)-e.Held)
	}
	if more <= 0 || s.lacks(e, more) == nil {
		return
	}
	e.CreditsEnd = e.PlacedAt.Add(e.Price.Buys(e.Held, e.Timeout) - e.StopGrace)
	if s.view.Format() >= format.Rotation {
		e.CreditsEnd = charge.GrowsAt(e).Add(charge.HoldMargin) // Also right for time that is owed.
	}
	whose := "the organization's credits end"
	if _, b := s.ceilingOf(e, more); b != nil {
		whose = ceilingName(b) + " reached"
	}
	e.Detail = whose + " in about " + e.CreditsEnd.Sub(s.view.meta.Now).Round(time.Minute).String()
}
