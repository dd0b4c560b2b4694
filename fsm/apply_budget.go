package fsm

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"

	"berth/compute"
	"berth/fsm/charge"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// maxBudgetURL bounds the URL that a budget notifies, in bytes.
const maxBudgetURL = 2048

// alertNumber is the number of the first callback about a budget: those of the
// execution's own URLs are below.
const alertNumber = 100

// spender spends credits: an organization, one of its keys or one of its members.
type spender struct {
	org  compute.OrgID
	key  compute.KeyID
	user compute.UserID
}

func bySpender(a, b spender) int {
	return cmp.Or(byOrg(a.org, b.org), byKey(a.key, b.key), byUser(a.user, b.user))
}

func spenderOf(b *compute.Budget) spender { return spender{b.Org, b.Key, b.User} }

// spendersOf returns the payers of e: its organization, its user and its key.
func spendersOf(e *compute.Execution) []spender {
	out := append(make([]spender, 0, 3), spender{org: e.Org}, spender{org: e.Org, user: e.User})
	if !e.Key.IsZero() {
		out = append(out, spender{org: e.Org, key: e.Key})
	}
	return out
}

// budgetTables has the budgets, and the sums that count toward them.
type budgetTables struct {
	budgets   store.Records[spender, compute.Budget]
	purchases store.Records[purchaseKey, compute.Purchase]
	heldBy    store.Table[spender, compute.Credits] // Held for executions of keys and members.
	gone      store.Index[goneKey, compute.Budget]  // Budgets whose key or account is gone.
}

func newBudgetTables() budgetTables {
	return budgetTables{
		budgets:   store.NewRecords(bySpender, spenderOf),
		purchases: store.NewRecords(byPurchase, purchaseKeyOf),
		heldBy:    store.NewTable[spender, compute.Credits](bySpender),
		gone: store.NewIndex(byGone,
			func(b *compute.Budget) goneKey { return goneKey{b.CheckAt, spenderOf(b)} },
			func(b *compute.Budget) bool { return !b.CheckAt.IsZero() }),
	}
}

// purchaseKey is where a purchase is among all.
type purchaseKey struct {
	org compute.OrgID
	id  string
}

func byPurchase(a, b purchaseKey) int {
	return cmp.Or(byOrg(a.org, b.org), strings.Compare(a.id, b.id))
}

func purchaseKeyOf(p *compute.Purchase) purchaseKey { return purchaseKey{p.Org, p.ID} }

func (v *budgetTables) storeBudget(b *compute.Budget) { v.gone.Update(v.budgets.Put(b), b) }

func (v *budgetTables) dropBudget(who spender) {
	if old := v.budgets.Drop(who); old != nil {
		v.gone.Update(old, nil)
	}
}

// countHeld counts the hold of an execution toward its key and its member.
func (v *budgetTables) countHeld(before, after *compute.Execution) {
	if before != nil && after != nil && before.Held == after.Held {
		return // Its key and its member never change.
	}
	for _, of := range []struct {
		e    *compute.Execution
		sign compute.Credits
	}{{before, -1}, {after, 1}} {
		if of.e == nil || of.e.Held == 0 {
			continue
		}
		for _, who := range spendersOf(of.e)[1:] {
			held, _ := v.heldBy.Get(who)
			if held += of.sign * of.e.Held; held == 0 {
				v.heldBy.Remove(who)
			} else {
				v.heldBy.Set(who, held)
			}
		}
	}
}

// Budget returns the budget of an organization, of its key or of its member.
func (v *budgetTables) Budget(org compute.OrgID, key compute.KeyID, user compute.UserID) (*compute.Budget, bool) {
	return v.budgets.Get(spender{org, key, user})
}

// Budgets returns the budgets of an organization, its own first.
func (v *budgetTables) Budgets(org compute.OrgID) []*compute.Budget {
	var out []*compute.Budget
	for at, b := range v.budgets.From(spender{org: org}) {
		if at.org != org {
			break
		}
		out = append(out, b)
	}
	return out
}

// Purchases returns the purchases of an organization, by the provider's identifier.
func (v *budgetTables) Purchases(org compute.OrgID) []*compute.Purchase {
	var out []*compute.Purchase
	for at, p := range v.purchases.From(purchaseKey{org: org}) {
		if at.org != org {
			break
		}
		out = append(out, p)
	}
	return out
}

// Spent returns how much of a budget is charged, and how much is held.
func (v *View) Spent(b *compute.Budget) (charged, held compute.Credits) {
	charged = b.Charged
	if b.Monthly && b.Month != monthOf(v.meta.Now) {
		charged = 0
	}
	if b.Key.IsZero() && b.User.IsZero() {
		return charged, v.Account(b.Org).Held
	}
	held, _ = v.heldBy.Get(spenderOf(b))
	return charged, held
}

// overBudget refuses to hold more for e than a ceiling leaves.
func (s *money) overBudget(e *compute.Execution, amount compute.Credits) *compute.Error {
	if _, b := s.ceilingOf(e, amount); b != nil {
		charged, held := s.view.Spent(b)
		return compute.Errorf(compute.CodeForbidden,
			"%s reached: this may cost up to %s credits, %s of %s are left", ceilingName(b), amount,
			max(b.MaxCredits-charged-held, 0), b.MaxCredits).Named("ceiling_reached")
	}
	return nil
}

// ceilingOf returns the ceiling that does not leave an amount for e, nil if all do.
func (s *money) ceilingOf(e *compute.Execution, amount compute.Credits) (spender, *compute.Budget) {
	if s.view.budgets.Len() == 0 || amount <= 0 {
		return spender{}, nil
	}
	for _, who := range spendersOf(e) {
		b, ok := s.view.budgets.Get(who)
		if !ok || !b.Enforce {
			continue
		}
		if charged, held := s.view.Spent(b); amount > b.MaxCredits-charged-held {
			return who, b
		}
	}
	return spender{}, nil
}

// ceilingName names a ceiling in messages.
func ceilingName(b *compute.Budget) string {
	switch {
	case !b.Key.IsZero():
		return "the ceiling of the API key is"
	case !b.User.IsZero():
		return "the member's ceiling is"
	}
	return "the organization's ceiling is"
}

// spend counts a charge for e toward the budgets of its payers, and reports the levels
// that they reach.
func (s *money) spend(e *compute.Execution, charged compute.Credits) {
	if s.view.budgets.Len() == 0 {
		return
	}
	for _, who := range spendersOf(e) {
		s.addCharge(e, who, charged)
	}
}

// addCharge counts a charge for e toward a budget, if there is one.
func (s *money) addCharge(e *compute.Execution, who spender, charged compute.Credits) {
	known, ok := s.view.budgets.Get(who)
	if !ok {
		return
	}
	b := *known
	b.Turn(monthOf(s.view.meta.Now))
	b.Charged += charged
	if !e.ID.IsZero() || s.view.Format() >= format.Alerts {
		s.report(e, &b, b.LevelOf(b.Charged), false)
	}
	s.view.storeBudget(&b)
}

// reportRunning reports the levels that the budgets of executions reach with what running
// work has used up of its holds, so that work that runs for weeks is not first seen in its
// charge. The executions are those whose holds were just extended. Work whose hold needs no
// further extension counts once more, with its charge.
func (s *money) reportRunning(extended []*compute.Execution) {
	if len(extended) == 0 || s.view.budgets.Len() == 0 || s.view.Format() < format.Rotation {
		return
	}
	used := s.usedUp(compute.ExecutionID{})
	for _, e := range extended {
		if !charge.MayGrow(e) { // It has left the index.
			s.addUsed(used, e)
		}
	}
	for _, e := range extended {
		for _, who := range spendersOf(e) {
			s.reportUsed(e, who, used[who])
		}
	}
}

// usedUp returns what running work whose holds are extended has used up of them, without
// one execution.
func (s *money) usedUp(without compute.ExecutionID) map[spender]compute.Credits {
	used := make(map[spender]compute.Credits)
	for _, index := range []store.Index[timeKey, compute.Execution]{s.view.growing, s.view.draining} {
		for at := range index.All() {
			if e, _ := s.view.executions.Get(at.execution()); e.ID != without {
				s.addUsed(used, e)
			}
		}
	}
	return used
}

// addUsed adds what e has used up of its hold to the sums of its payers.
func (s *money) addUsed(used map[spender]compute.Credits, e *compute.Execution) {
	amount := min(e.Price.Charge(e.Owed+s.view.meta.Now.Sub(e.PlacedAt)), e.Held)
	for _, who := range spendersOf(e) {
		used[who] += amount
	}
}

// reportUsed reports the level that a budget reaches with an amount that is not charged yet.
func (s *money) reportUsed(e *compute.Execution, who spender, used compute.Credits) {
	known, ok := s.view.budgets.Get(who)
	if !ok {
		return
	}
	b := *known
	b.Turn(monthOf(s.view.meta.Now))
	charged := b.Charged
	b.Charged += used
	if b.LevelOf(b.Charged) <= b.Level {
		return
	}
	s.report(e, &b, b.LevelOf(b.Charged), false)
	b.Charged = charged
	s.view.storeBudget(&b)
}

// reportFree takes back the levels of budgets that only an execution had reached that costs
// nothing in the end, so that they are reported when they are reached again. A ceiling at
// which work was stopped stays reported.
func (s *money) reportFree(e *compute.Execution) {
	if s.view.budgets.Len() == 0 || s.view.Format() < format.Rotation {
		return
	}
	used := s.usedUp(e.ID)
	levels := compute.BudgetLevels()
	for _, who := range spendersOf(e) {
		known, ok := s.view.budgets.Get(who)
		if !ok || known.Level == levels[len(levels)-1] {
			continue
		}
		b := *known
		if b.Level = min(b.Level, b.LevelOf(b.Charged+used[who])); b.Level != known.Level {
			s.view.storeBudget(&b)
		}
	}
}

// reportStop reports that e is stopped at a ceiling: its charge may stay below the last
// level.
func (s *money) reportStop(e *compute.Execution, who spender) {
	known, ok := s.view.budgets.Get(who)
	if !ok {
		return
	}
	b := *known
	b.Turn(monthOf(s.view.meta.Now))
	levels := compute.BudgetLevels()
	s.report(e, &b, levels[len(levels)-1], true)
	s.view.storeBudget(&b)
}

// report has the URL of a budget notified of a level, once. The callback belongs to the
// execution that reached it, or to the organization if e stands for a payer of tokens.
func (s *money) report(e *compute.Execution, b *compute.Budget, level int, stopped bool) {
	if level <= b.Level {
		return
	}
	b.Level = level
	if b.URL == "" {
		return
	}
	c := &compute.Callback{
		Execution: e.ID, Number: alertNumber, URL: b.URL, CreatedAt: s.view.meta.Now,
		Alert: &compute.BudgetAlert{
			Key: b.Key, User: b.User, Level: level, Charged: b.Charged, MaxCredits: b.MaxCredits, Monthly: b.Monthly,
			Stopped: stopped,
		},
	}
	if e.ID.IsZero() { // The time makes the identifier new: no record remembers those before.
		c.Org, c.Number = b.Org, max(alertNumber, int(s.view.meta.Now))
	}
	for s.view.callbacks.Has(callbackKey(c)) {
		c.Number++
	}
	s.view.putCallback(c)
}

// setBudget gives an organization, a key or a member a budget, or changes it. Earlier
// charges still count toward it.
func (s *money) setBudget(c command.SetBudget) command.Result {
	b := c.Budget
	if refusal := s.admitBudget(c.Actor, spenderOf(&b)); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if refusal := checkBudget(&b); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	s.putBudget(&b)
	return command.Result{ID: b.Org.UUID}
}

// putBudget stores a budget. Earlier charges still count toward it, unless it becomes
// monthly or stops being so.
func (s *money) putBudget(b *compute.Budget) {
	b.Charged, b.Month, b.Level, b.ChangedAt, b.CheckAt = 0, 0, 0, s.view.meta.Now, 0
	if b.Monthly {
		b.Month = monthOf(s.view.meta.Now)
		if a := s.view.Account(b.Org); b.Key.IsZero() && b.User.IsZero() && a.Month == b.Month {
			b.Charged = a.InMonth
		}
	}
	if known, ok := s.view.budgets.Get(spenderOf(b)); ok {
		b.CheckAt = known.CheckAt
		if known.Monthly == b.Monthly {
			b.Charged, b.Month = known.Charged, known.Month
		}
	}
	if b.Month == 0 || b.Month == monthOf(s.view.meta.Now) {
		b.Level = b.LevelOf(b.Charged) // Levels that it has already reached are not reported.
	}
	s.view.storeBudget(b)
}

// removeBudget removes a budget.
func (s *money) removeBudget(c command.RemoveBudget) command.Result {
	who := spender{c.Org, c.Key, c.User}
	if refusal := s.admitBudget(c.Actor, who); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	if !s.view.budgets.Has(who) {
		return refuse(compute.CodeNotFound, "budget_not_found", "there is no such budget")
	}
	s.view.dropBudget(who)
	return command.Result{ID: c.Org.UUID}
}

// admitBudget refuses an actor that may not set the budget of who. Owners set those of
// the organization and its members, admins those of keys. A key with a ceiling sets none.
func (s *money) admitBudget(a command.Actor, who spender) *compute.Error {
	org, ok := s.view.orgs.Get(who.org)
	if !ok || !org.DeletedAt.IsZero() {
		return compute.Errorf(compute.CodeNotFound, "organization not found").Named("org_unknown")
	}
	act := compute.ActSetBudget
	if !who.key.IsZero() {
		act = compute.ActManageKeys
	}
	if refusal := s.access.admitMembers(a, who.org, act); refusal != nil {
		return refusal
	}
	_, key := s.view.Key(who.org, who.key)
	_, member := s.view.Membership(who.org, who.user)
	known := s.view.budgets.Has(who) // Also of a member that may return, and while work of a deleted key goes on.
	switch {
	case !who.key.IsZero() && !who.user.IsZero():
		return compute.Errorf(compute.CodeInvalid, "a budget is of a key or of a member").Named("budget")
	case !who.key.IsZero() && !key && !known:
		return compute.Errorf(compute.CodeNotFound, "API key not found").Named("key_not_found")
	case !who.user.IsZero() && !member && !known:
		return compute.Errorf(compute.CodeNotFound, "there is no such member").Named("member_not_found")
	}
	return nil
}

// checkBudget refuses a budget that says nothing, or too much.
func checkBudget(b *compute.Budget) *compute.Error {
	invalid := func(format string, args ...any) *compute.Error {
		return compute.Errorf(compute.CodeInvalid, format, args...).Named("budget")
	}
	u, err := url.Parse(b.URL)
	usable := err == nil && u.Scheme == "https" && u.Host != "" && len(b.URL) <= maxBudgetURL
	switch {
	case b.MaxCredits <= 0 || b.MaxCredits > maxAmount:
		return invalid("max_credits is above 0 and at most %s", maxAmount)
	case b.URL != "" && (!usable || strings.Contains(b.URL, "${{")):
		return invalid("callback_url is an https URL of at most %d bytes", maxBudgetURL)
	}
	return nil
}

// recordPurchase adds credits that were paid for, once for each checkout session.
func (s *money) recordPurchase(c command.RecordPurchase) command.Result {
	p := c.Purchase
	org, ok := s.view.orgs.Get(p.Org)
	switch {
	case !ok || !org.DeletedAt.IsZero():
		return refuse(compute.CodeNotFound, "org_unknown", "organization not found")
	case p.ID == "" || len(p.ID) > maxDetail || len(p.Payment)+len(p.Currency)+len(p.Customer) > maxDetail || p.Paid < 0:
		return refuse(compute.CodeInvalid, "purchase", "a purchase has the identifier of its checkout session")
	case s.view.purchases.Has(purchaseKeyOf(&p)):
		return command.Result{Repeat: true, ID: p.Org.UUID}
	case p.Amount <= 0 || p.Amount > s.view.fits(p.Org):
		return refuse(compute.CodeInvalid, "amount",
			"an amount that is bought is above 0, and at most %s for this organization", s.view.fits(p.Org))
	}
	p.At = s.view.meta.Now
	s.view.purchases.Put(&p)
	s.post(compute.LedgerEntry{Org: p.Org, Kind: compute.LedgerGrant, Amount: p.Amount, Note: clip("purchase " + p.ID)})
	return command.Result{ID: p.Org.UUID}
}

// dropBudgets removes all budgets of an organization.
func (s *money) dropBudgets(org compute.OrgID) {
	for _, b := range s.view.Budgets(org) {
		s.view.dropBudget(spenderOf(b))
	}
}

// checkBudgets checks that the organizations of budgets exist, that budgets whose key or
// account does not exist are known as such, and that the amounts of budgets and purchases
// are valid.
func (v checker) checkBudgets() error {
	for b := range v.view.budgets.Values() {
		if o, org := v.view.orgs.Get(b.Org); !org || !o.DeletedAt.IsZero() {
			return fmt.Errorf("a budget of organization %s, which does not exist", b.Org)
		}
		if gone := v.view.isGone(b); gone == b.CheckAt.IsZero() {
			return fmt.Errorf("a budget of organization %s, key %s and member %s: one is gone: %t, the budget is checked at %s",
				b.Org, b.Key, b.User, gone, b.CheckAt)
		}
		if b.MaxCredits <= 0 || b.Charged < 0 {
			return fmt.Errorf("a budget of organization %s has %s of %s", b.Org, b.Charged, b.MaxCredits)
		}
	}
	for p := range v.view.purchases.Values() {
		if _, ok := v.view.orgs.Get(p.Org); !ok || p.Amount <= 0 {
			return fmt.Errorf("purchase %s is of no organization, or of nothing", p.ID)
		}
	}
	return nil
}
