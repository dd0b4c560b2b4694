package fsm

import (
	"cmp"
	"slices"
	"time"

	"berth/compute"
	"berth/fsm/format"
)

// Budgets and quotas of keys and accounts that are gone.
const (
	goneAge   = time.Minute // Between two checks whether work of theirs goes on.
	goneSweep = 50          // Checks in one Tick at most: each may look at all live work of its organization.
)

// goneKey is the place of a budget whose key or account is gone, by when it is checked.
type goneKey struct {
	at compute.Instant
	spender
}

func byGone(a, b goneKey) int {
	return cmp.Or(cmp.Compare(a.at, b.at), bySpender(a.spender, b.spender))
}

// dropBudgetsOf removes the budgets of a user in all organizations. Those of work that goes
// on stay until it ends.
func (s *money) dropBudgetsOf(user compute.UserID) {
	for _, b := range slices.Collect(s.view.budgets.Values()) {
		if b.User == user {
			s.endBudget(spenderOf(b))
		}
	}
}

// endBudget removes the budget of a key or an account that is gone. While work of it goes
// on, the budget stays and is checked again: the work would lose its ceiling otherwise.
func (s *money) endBudget(who spender) {
	known, ok := s.view.budgets.Get(who)
	if !ok {
		return
	}
	if s.view.Format() < format.Rotation || !s.view.works(who) {
		s.view.dropBudget(who)
		return
	}
	b := *known
	b.CheckAt = s.view.meta.Now.Add(goneAge)
	s.view.storeBudget(&b)
}

// endBudgets removes the budgets of keys and accounts that are gone and of which no work
// goes on.
func (s *money) endBudgets() {
	for _, due := range s.view.gone.FirstKeys(goneSweep) {
		if due.at > s.view.meta.Now {
			return
		}
		s.endBudget(due.spender)
	}
}

// works reports whether work of a key or a member goes on that may still be charged.
func (v *View) works(who spender) bool {
	if _, holds := v.heldBy.Get(who); holds {
		return true
	}
	for e := range v.Live(who.org) { // Parents hold nothing, and create executions later.
		if e.Key == who.key && !who.key.IsZero() || e.User == who.user && !who.user.IsZero() {
			return true
		}
	}
	return false
}

// isGone reports whether the key or the account of a budget does not exist.
func (v *View) isGone(b *compute.Budget) bool { return v.gonePayer(b.Org, b.Key, b.User) }

// gonePayer reports whether a key or an account does not exist.
func (v *View) gonePayer(org compute.OrgID, key compute.KeyID, user compute.UserID) bool {
	_, keyKnown := v.Key(org, key)
	u, userKnown := v.users.Get(user)
	return !key.IsZero() && !keyKnown || !user.IsZero() && (!userKnown || !u.DeletedAt.IsZero())
}
