package fsm

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

const (
	// tokenHoldAge is the time after which a hold that its node does not ask for again is released. It
	// has to be longer than meter.leaseFor, for which the node admits requests from the hold.
	tokenHoldAge  = 5 * time.Minute
	maxTokenHolds = 100_000
	maxTokenUsage = 100_000 // Rows of minutes that are not posted.
	tokenSweep    = 10_000  // Holds and rows that one Tick ends at most.
)

// Keys of the tables of tokens.
type (
	tokenHoldKey struct {
		node compute.NodeID
		spender
	}

	tokenTotalKey struct {
		org   compute.OrgID
		model string
	}

	tokenUsageKey struct {
		tokenTotalKey

		key  compute.KeyID
		user compute.UserID
	}

	// tokenSession is the last batch of a node that was counted.
	tokenSession struct {
		Node   compute.NodeID `cbor:"1,keyasint"`
		Index  uint64         `cbor:"2,keyasint"` // Where the session began.
		Number uint64         `cbor:"3,keyasint"`

		Uncharged compute.Credits `cbor:"4,keyasint,omitempty"` // By the last batch.
	}
)

func byTokenHold(a, b tokenHoldKey) int {
	return cmp.Or(bytes.Compare(a.node.UUID[:], b.node.UUID[:]), bySpender(a.spender, b.spender))
}

func byTokenTotal(a, b tokenTotalKey) int {
	return cmp.Or(byOrg(a.org, b.org), strings.Compare(a.model, b.model))
}

func byTokenUsage(a, b tokenUsageKey) int {
	return cmp.Or(byTokenTotal(a.tokenTotalKey, b.tokenTotalKey), byKey(a.key, b.key), byUser(a.user, b.user))
}

func holdKeyOf(h *compute.TokenHold) tokenHoldKey {
	return tokenHoldKey{h.Node, spender{h.Payer.Org, h.Payer.Key, h.Payer.User}}
}

func usageKeyOf(u *compute.TokenUsage) tokenUsageKey {
	return tokenUsageKey{tokenTotalKey{u.Payer.Org, u.Model}, u.Payer.Key, u.Payer.User}
}

func newModelTables() modelTables {
	return modelTables{
		models:     store.NewRecords(strings.Compare, func(m *compute.Model) string { return m.ID }),
		tokenHolds: store.NewRecords(byTokenHold, holdKeyOf),
		tokenUsage: store.NewRecords(byTokenUsage, usageKeyOf),
		tokenTotals: store.NewRecords(byTokenTotal, func(t *compute.TokenTotal) tokenTotalKey {
			return tokenTotalKey{t.Org, t.Model}
		}),
		tokenSessions: store.NewRecords(byNode, func(t *tokenSession) compute.NodeID { return t.Node }),
	}
}

// TokenHold returns the credits that a node has set aside for a payer.
func (v *modelTables) TokenHold(node compute.NodeID, p compute.Payer) compute.Credits {
	if h, ok := v.tokenHolds.Get(tokenHoldKey{node, spender{p.Org, p.Key, p.User}}); ok {
		return h.Amount
	}
	return 0
}

// HoldsTokens reports whether a node has set credits aside for anybody.
func (v *modelTables) HoldsTokens(node compute.NodeID) bool {
	for at := range v.tokenHolds.From(tokenHoldKey{node: node}) {
		return at.node == node
	}
	return false
}

// TokenTotals returns an organization's use of each model and its charges, the minute
// that is not posted yet included.
func (v *modelTables) TokenTotals(org compute.OrgID) []compute.TokenTotal {
	var out []compute.TokenTotal
	for at, t := range v.tokenTotals.From(tokenTotalKey{org: org}) {
		if at.org != org {
			break
		}
		out = append(out, *t)
	}
	for at, u := range v.tokenUsage.From(tokenUsageKey{tokenTotalKey: tokenTotalKey{org: org}}) {
		if at.org != org {
			break
		}
		i, ok := slices.BinarySearchFunc(out, at.model, func(t compute.TokenTotal, model string) int {
			return strings.Compare(t.Model, model)
		})
		if !ok {
			out = slices.Insert(out, i, compute.TokenTotal{Org: org, Model: at.model})
		}
		out[i].Prompt, out[i].Completion = out[i].Prompt+u.Prompt, out[i].Completion+u.Completion
		out[i].Requests += u.Requests
		cost := u.Cost.Plus(compute.TokenCost{Whole: out[i].Charged, Rest: out[i].Rest})
		out[i].Charged, out[i].Rest = cost.Whole, cost.Rest
	}
	return out
}

// UnpostedTokens returns an organization's use of models that its ledger does not have
// yet, one entry for each payer and model.
func (v *modelTables) UnpostedTokens(org compute.OrgID) (out []compute.TokenUsage) {
	for at, u := range v.tokenUsage.From(tokenUsageKey{tokenTotalKey: tokenTotalKey{org: org}}) {
		if at.org != org {
			break
		}
		out = append(out, *u)
	}
	return out
}

// TokenBatch returns the session of a node and the last batch of it that was counted.
func (v *modelTables) TokenBatch(node compute.NodeID) (session, number uint64) {
	if t, ok := v.tokenSessions.Get(node); ok {
		return t.Index, t.Number
	}
	return 0, 0
}

// LacksTokens returns the reason for which nothing more is set aside for a payer, nil if
// it was.
func (v *View) LacksTokens(p compute.Payer, amount compute.Credits) *compute.Error {
	return stateOf(v).money.lacks(payerExecution(p), amount)
}

// payerExecution stands for a payer where an execution pays.
func payerExecution(p compute.Payer) *compute.Execution {
	return &compute.Execution{Org: p.Org, User: p.User, Key: p.Key}
}

// minuteOf returns the minute of i since 1970.
func minuteOf(i compute.Instant) int64 { return int64(i) / time.Minute.Milliseconds() }

// settleTokens counts a batch of a node, once.
func (s *money) settleTokens(c command.SettleTokens) command.Result {
	last := tokenSession{Node: c.Node}
	if known, ok := s.view.tokenSessions.Get(c.Node); ok {
		last = *known
	}
	_, known := s.view.nodes.Get(c.Node)
	same := c.Session == last.Index
	switch {
	case !known:
		return refuse(compute.CodeNotFound, "node_unknown", "node not found")
	case same && c.Number != 0 && c.Number == last.Number:
		return command.Result{Repeat: true, Uncharged: last.Uncharged}
	case same && c.Number != 0 && c.Number < last.Number:
		return command.Result{Repeat: true}
	case c.Session < last.Index || same && c.Number != last.Number+1 || !same && c.Number != 1:
		return refuse(compute.CodeConflict, "session_ended", "the node's batches begin again")
	case len(c.Usage)+len(c.Holds) > compute.MaxTokenRows || slices.ContainsFunc(c.Usage, badUsage) ||
		slices.ContainsFunc(c.Holds, badHold):
		return refuse(compute.CodeInvalid, "tokens", "a batch has bad rows")
	}
	if !same {
		s.releaseTokens(func(h *compute.TokenHold) bool { return h.Node == c.Node }, "the node began again")
	}
	var uncharged compute.Credits
	for i := range c.Usage {
		uncharged += s.useTokens(c.Node, &c.Usage[i])
	}
	s.view.tokenSessions.Put(&tokenSession{c.Node, c.Session, c.Number, uncharged})
	for i := range c.Holds {
		s.holdTokens(c.Node, &c.Holds[i])
	}
	return command.Result{Count: len(c.Usage), Uncharged: uncharged}
}

func badUsage(u command.UsedTokens) bool {
	return !u.Prices.Valid() || u.Model == "" || len(u.Model) > compute.MaxModelID || u.Requests < 0 ||
		u.Requests > compute.MaxTokens || u.Prompt < 0 || u.Prompt > compute.MaxTokens ||
		u.Completion < 0 || u.Completion > compute.MaxTokens
}

func badHold(h command.WantedHold) bool { return h.Least < 0 || h.Most < h.Least || h.Most > maxAmount }

// pays reports whether an organization can still be charged.
func (v *identityTables) pays(org compute.OrgID) bool {
	o, ok := v.orgs.Get(org)
	return ok && o.DeletedAt.IsZero()
}

// useTokens adds to a payer's use in this minute. Its cost moves from the hold of the
// node. A rest that the hold does not cover is set aside now, because it was used, as far as the
// payer has free credits. It returns what nobody pays.
func (s *money) useTokens(node compute.NodeID, used *command.UsedTokens) (uncharged compute.Credits) {
	if !s.view.pays(used.Payer.Org) {
		return 0
	}
	u := compute.TokenUsage{Payer: used.Payer, Model: used.Model, Minute: minuteOf(s.view.meta.Now)}
	if known, ok := s.view.tokenUsage.Get(usageKeyOf(&u)); ok && known.Minute == u.Minute {
		u = *known
	} else if ok || s.view.tokenUsage.Len() >= maxTokenUsage {
		s.postTokens(tokenTotalKey{u.Payer.Org, u.Model})
	}
	before := u.Cost.Up()
	u.Prompt, u.Completion, u.Requests = u.Prompt+used.Prompt, u.Completion+used.Completion, u.Requests+used.Requests
	u.Cost = u.Cost.Plus(used.Prices.Cost(used.Prompt, used.Completion))
	more := u.Cost.Up() - before
	h := compute.TokenHold{Node: node, Payer: u.Payer}
	if known, ok := s.view.tokenHolds.Get(holdKeyOf(&h)); ok {
		h = *known
	}
	paid := min(more, h.Amount)
	if rest := more - paid; rest > 0 && s.view.Format() >= format.Rotation {
		if uncharged = rest - s.leaves(payerExecution(u.Payer), rest); uncharged > 0 {
			more -= uncharged
			u.Cost = compute.TokenCost{Whole: before + more}
		}
	}
	h.Amount -= paid
	s.putTokenHold(&h)
	s.putTokenUsage(&u)
	if more > paid {
		s.post(compute.LedgerEntry{
			Org: u.Payer.Org, Kind: compute.LedgerHold, Amount: more - paid,
			Note: "serverless " + u.Model + ": more tokens than expected",
		})
	}
	return uncharged
}

// leaves returns how much of an amount the free credits and the ceilings of e's payers leave.
func (s *money) leaves(e *compute.Execution, amount compute.Credits) compute.Credits {
	account := s.view.Account(e.Org)
	if s.view.meta.Settings.Meter {
		amount = min(amount, maxAmount-account.Held)
	} else {
		amount = min(amount, account.Available())
	}
	for _, who := range spendersOf(e) {
		if b, ok := s.view.budgets.Get(who); ok && b.Enforce {
			charged, held := s.view.Spent(b)
			amount = min(amount, b.MaxCredits-charged-held)
		}
	}
	return max(amount, 0)
}

// holdTokens sets credits aside for a payer, or releases them.
func (s *money) holdTokens(node compute.NodeID, want *command.WantedHold) {
	if !s.view.pays(want.Payer.Org) {
		return
	}
	h := compute.TokenHold{Node: node, Payer: want.Payer}
	known, ok := s.view.tokenHolds.Get(holdKeyOf(&h))
	if ok {
		h = *known
	} else if s.view.tokenHolds.Len() >= maxTokenHolds {
		return
	}
	h.At = s.view.meta.Now
	switch e := payerExecution(want.Payer); {
	case h.Amount > want.Most:
		s.postHold(&h, want.Most-h.Amount, "serverless: idle")
	case h.Amount >= want.Least:
	case s.view.Format() >= format.Rotation && s.view.gonePayer(want.Payer.Org, want.Payer.Key, want.Payer.User):
		// A late request: nothing would bound it once its budget is dropped.
	case s.lacks(e, want.Most-h.Amount) == nil:
		s.postHold(&h, want.Most-h.Amount, "serverless: requests")
	case s.lacks(e, want.Least-h.Amount) == nil:
		s.postHold(&h, want.Least-h.Amount, "serverless: requests")
	}
	s.putTokenHold(&h)
}

// postHold changes a hold by an amount. The caller stores it.
func (s *money) postHold(h *compute.TokenHold, amount compute.Credits, note string) {
	h.Amount += amount
	line := compute.LedgerEntry{Org: h.Payer.Org, Kind: compute.LedgerHold, Amount: amount, Note: note}
	if amount < 0 {
		line.Kind, line.Amount = compute.LedgerRelease, -amount
	}
	s.post(line)
}

// putTokenHold stores a hold, or drops an empty one.
func (s *money) putTokenHold(h *compute.TokenHold) {
	var old *compute.TokenHold
	if h.Amount == 0 {
		old = s.view.tokenHolds.Drop(holdKeyOf(h))
	} else {
		old = s.view.tokenHolds.Put(h)
		s.view.addHeld(h.Payer, h.Amount)
	}
	if old != nil {
		s.view.addHeld(old.Payer, -old.Amount)
	}
}

// putTokenUsage stores a payer's use of a model.
func (s *money) putTokenUsage(u *compute.TokenUsage) {
	if old := s.view.tokenUsage.Put(u); old != nil {
		s.view.addHeld(old.Payer, -old.Cost.Up())
	}
	s.view.addHeld(u.Payer, u.Cost.Up())
}

// addHeld counts a hold toward a payer's key and member.
func (v *budgetTables) addHeld(p compute.Payer, amount compute.Credits) {
	if amount == 0 {
		return
	}
	for _, who := range spendersOf(payerExecution(p))[1:] {
		held, _ := v.heldBy.Get(who)
		if held += amount; held == 0 {
			v.heldBy.Remove(who)
		} else {
			v.heldBy.Set(who, held)
		}
	}
}

// postTokens charges an organization for its use of a model since the last charge: one
// line for all its payers. A rest below one micro-credit is left for the next charge.
func (s *money) postTokens(of tokenTotalKey) {
	var rows []*compute.TokenUsage
	for at, u := range s.view.tokenUsage.From(tokenUsageKey{tokenTotalKey: of}) {
		if at.tokenTotalKey != of {
			break
		}
		rows = append(rows, u)
	}
	if len(rows) == 0 {
		return
	}
	t := compute.TokenTotal{Org: of.org, Model: of.model}
	if known, ok := s.view.tokenTotals.Get(of); ok {
		t = *known
	}
	cost, released := compute.TokenCost{Rest: t.Rest}, compute.Credits(0)
	var prompt, completion int64
	for _, u := range rows {
		s.view.tokenUsage.Drop(usageKeyOf(u))
		s.view.addHeld(u.Payer, -u.Cost.Up())
		cost, released = cost.Plus(u.Cost), released+u.Cost.Up()
		prompt, completion = prompt+u.Prompt, completion+u.Completion
		t.Requests += u.Requests
	}
	t.Prompt, t.Completion = t.Prompt+prompt, t.Completion+completion
	t.Charged, t.Rest = t.Charged+cost.Whole, cost.Rest
	s.view.tokenTotals.Put(&t)
	line := compute.LedgerEntry{
		Org: of.org, Kind: compute.LedgerRelease, Amount: released,
		Note: compute.TokenNote(of.model, prompt, completion),
	}
	if released > 0 {
		s.post(line)
	}
	if line.Kind, line.Amount = compute.LedgerCharge, cost.Whole; line.Amount > 0 {
		s.post(line)
	}
	s.spendTokens(of.org, rows, cost.Whole)
}

// spendTokens counts a charge toward the budgets of the organization and of the payers,
// and reports the levels that they reach.
func (s *money) spendTokens(org compute.OrgID, rows []*compute.TokenUsage, charged compute.Credits) {
	s.addTokens(compute.Payer{Org: org}, spender{org: org}, charged)
	for _, u := range rows {
		for _, who := range spendersOf(payerExecution(u.Payer))[1:] {
			s.addTokens(u.Payer, who, u.Cost.Up())
		}
	}
}

func (s *money) addTokens(by compute.Payer, who spender, charged compute.Credits) {
	if charged > 0 {
		s.addCharge(payerExecution(by), who, charged)
	}
}

// releaseTokens releases holds.
func (s *money) releaseTokens(which func(*compute.TokenHold) bool, note string) {
	n := 0
	for _, known := range slices.Collect(s.view.tokenHolds.Values()) {
		if n == tokenSweep || !which(known) {
			continue
		}
		h := *known
		s.postHold(&h, -h.Amount, "serverless: "+note)
		s.putTokenHold(&h)
		n++
	}
}

// postDueTokens posts the minutes that are over, and releases the holds that nodes have not
// asked for again. The node of a hold may be cut off and not know it: until its lease has surely
// ended, it goes on admitting requests, whatever the cluster takes it for.
func (s *money) postDueTokens() {
	if s.view.Format() < format.Serverless {
		return
	}
	now, due := minuteOf(s.view.meta.Now), []tokenTotalKey(nil)
	for at, u := range s.view.tokenUsage.All() {
		if n := len(due); u.Minute < now && n < tokenSweep && (n == 0 || due[n-1] != at.tokenTotalKey) {
			due = append(due, at.tokenTotalKey)
		}
	}
	for _, of := range due {
		s.postTokens(of)
	}
	limit := s.view.meta.Now.Add(-tokenHoldAge)
	s.releaseTokens(func(h *compute.TokenHold) bool {
		n, ok := s.view.nodes.Get(h.Node)
		early := s.view.Format() < format.Rotation && (!ok || n.State != compute.NodeUp)
		return early || h.At < limit
	}, "the node is gone or idle")
	for _, t := range slices.Collect(s.view.tokenSessions.Values()) {
		if _, ok := s.view.nodes.Get(t.Node); !ok {
			s.view.tokenSessions.Drop(t.Node)
		}
	}
}

// endTokens posts everything of an organization that ends, and releases its holds.
func (s *money) endTokens(org compute.OrgID) {
	var due []tokenTotalKey
	for at := range s.view.tokenUsage.From(tokenUsageKey{tokenTotalKey: tokenTotalKey{org: org}}) {
		if at.org != org {
			break
		}
		if n := len(due); n == 0 || due[n-1] != at.tokenTotalKey {
			due = append(due, at.tokenTotalKey)
		}
	}
	for _, of := range due {
		s.postTokens(of)
	}
	for _, known := range slices.Collect(s.view.tokenHolds.Values()) {
		if known.Payer.Org == org {
			h := *known
			s.postHold(&h, -h.Amount, "serverless: the organization ends")
			s.putTokenHold(&h)
		}
	}
}

// checkTokens checks that holds and usage are of organizations that exist.
func (v checker) checkTokens() error {
	for h := range v.view.tokenHolds.Values() {
		if h.Amount <= 0 || !v.view.pays(h.Payer.Org) {
			return fmt.Errorf("node %s holds %s for organization %s", h.Node, h.Amount, h.Payer.Org)
		}
	}
	for u := range v.view.tokenUsage.Values() {
		if u.Cost.Whole < 0 || u.Cost.Rest >= 1_000_000 || !v.view.pays(u.Payer.Org) {
			return fmt.Errorf("usage of model %q by organization %s is damaged", u.Model, u.Payer.Org)
		}
	}
	for t := range v.view.tokenTotals.Values() {
		if _, ok := v.view.orgs.Get(t.Org); !ok || t.Rest >= 1_000_000 || t.Charged < 0 {
			return fmt.Errorf("total of model %q of organization %s is damaged", t.Model, t.Org)
		}
	}
	return nil
}

// heldForTokens adds the holds for tokens of each organization.
func (v *modelTables) heldForTokens(held map[compute.OrgID]compute.Credits) {
	for h := range v.tokenHolds.Values() {
		held[h.Payer.Org] += h.Amount
	}
	for u := range v.tokenUsage.Values() {
		held[u.Payer.Org] += u.Cost.Up()
	}
}
