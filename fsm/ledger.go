package fsm

import (
	"fmt"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/ledger"
)

// maxAmount bounds balances, so that no sum overflows.
const maxAmount = compute.MaxAmount

// post writes a line of an organization's ledger and brings its account to
// it. Index, time, sequence, balances and hash are filled here.
func (s *money) post(e compute.LedgerEntry) {
	a := *s.view.Account(e.Org)
	switch e.Kind {
	case compute.LedgerGrant:
		a.Balance += e.Amount
		a.Granted += e.Amount
	case compute.LedgerHold:
		a.Held += e.Amount
	case compute.LedgerRelease:
		a.Held -= e.Amount
	case compute.LedgerCharge:
		a.Balance -= e.Amount
		a.Charged += e.Amount
		if month := monthOf(s.view.meta.Now); month != a.Month {
			a.Month, a.InMonth = month, 0
		}
		a.InMonth += e.Amount
	case compute.LedgerFork: // It moves nothing.
	}
	a.Seq++
	e.Seq, e.Index, e.At = a.Seq, s.view.meta.Index, s.view.meta.Now
	e.Balance, e.Held = a.Balance, a.Held
	s.view.ledger.Append(a.Head, &e)
	a.Head, a.UpdatedAt = e.Hash, s.view.meta.Now
	s.putAccount(&a)
}

// monthOf returns the month of i, UTC, as accounts count months.
func monthOf(i compute.Instant) int {
	t := i.Time()
	return t.Year()*12 + int(t.Month()) - 1
}

// VerifyLedger recomputes an organization's chain and balances from its first
// line on, and compares them with its account.
func (v *moneyTables) VerifyLedger(org compute.OrgID) error {
	var want compute.Account
	for e := range v.Ledger(org, 0) {
		want.Seq++
		switch e.Kind {
		case compute.LedgerGrant:
			want.Balance += e.Amount
			want.Granted += e.Amount
		case compute.LedgerHold:
			want.Held += e.Amount
		case compute.LedgerRelease:
			want.Held -= e.Amount
		case compute.LedgerCharge:
			want.Balance -= e.Amount
			want.Charged += e.Amount
		case compute.LedgerFork: // It moves nothing.
		}
		switch {
		case e.Seq != want.Seq:
			return fmt.Errorf("ledger of %s: line %d is missing", org, want.Seq)
		case e.Amount < 0:
			return fmt.Errorf("ledger of %s: line %d has a negative amount", org, e.Seq)
		case e.Balance != want.Balance || e.Held != want.Held:
			return fmt.Errorf("ledger of %s: line %d does not add up", org, e.Seq)
		case e.Hash != ledger.Chain(want.Head, *e):
			return fmt.Errorf("ledger of %s: the chain breaks at line %d", org, e.Seq)
		}
		want.Head = e.Hash
	}
	a := v.Account(org)
	if a.Seq != want.Seq || a.Head != want.Head || a.Balance != want.Balance ||
		a.Held != want.Held || a.Granted != want.Granted || a.Charged != want.Charged {
		return fmt.Errorf("ledger of %s: the account does not match its lines", org)
	}
	return nil
}

// grant gives credits to an organization.
func (s *money) grant(c command.Grant) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	org, known := s.view.orgs.Get(c.Org)
	switch {
	case !known || !org.DeletedAt.IsZero():
		return refuse(compute.CodeNotFound, "org_unknown", "organization not found")
	case c.Amount <= 0 || c.Amount > s.view.fits(c.Org):
		return refuse(compute.CodeInvalid, "amount",
			"an amount that is granted is above 0, and at most %s to this organization", s.view.fits(c.Org))
	}
	s.post(compute.LedgerEntry{
		Org: c.Org, Kind: compute.LedgerGrant, Amount: c.Amount, Note: clip(c.Note),
	})
	return command.Result{ID: c.Org.UUID}
}

// fits returns how many credits an organization can get before its balance is maxAmount.
func (v *View) fits(org compute.OrgID) compute.Credits { return maxAmount - v.Account(org).Balance }
