package fsm_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// modelThing publishes deployments, withdraws them, and settles tokens of them.
func (h *historian) modelThing() {
	if h.view().Format() < format.Newest {
		return
	}
	a := h.actor()
	by := pick(h, h.root, h.root, a)
	op := h.request()
	id := fmt.Sprint("m", h.rng.IntN(4))
	for d := range h.view().Deployments {
		if h.chance(2) {
			h.send(command.SetModel{Op: op, Actor: by, ID: id, Deployment: d.ID, Prices: compute.TokenPrices{
				Prompt: compute.Credits(h.rng.IntN(9_000_000) - 1), Completion: compute.Credits(h.rng.IntN(9_000_000)),
			}})
		}
	}
	if h.chance(2) {
		h.send(command.RemoveModel{Op: op, Actor: by, ID: id})
	}
	for n := range h.view().Nodes() {
		session, number := h.view().TokenBatch(n.ID)
		c := command.SettleTokens{Node: n.ID, Session: session, Number: number + uint64(h.rng.IntN(3))}
		if session == 0 || h.chance(4) {
			c.Session, c.Number = session+uint64(h.rng.IntN(2)), uint64(1+h.rng.IntN(4)/3)
		}
		for range h.rng.IntN(4) {
			who := h.actor()
			p := compute.Payer{Org: who.Org, User: who.User, Key: who.Key}
			if h.chance(2) {
				most := compute.Credits(h.rng.IntN(2_000_000))
				c.Holds = append(c.Holds, command.WantedHold{Payer: p, Least: most / compute.Credits(1+h.rng.IntN(3)), Most: most})
			}
			c.Usage = append(c.Usage, command.UsedTokens{
				Payer: p, Model: id, Prompt: h.rng.Int64N(90_000), Completion: h.rng.Int64N(9), Requests: 1,
				Prices: compute.TokenPrices{Prompt: compute.Credits(h.rng.IntN(3_000_000)), Completion: 1},
			})
		}
		h.settleTokens(c)
	}
}

// settleTokens settles a batch, which takes nothing that is not free: charges move what is held.
func (h *historian) settleTokens(c command.SettleTokens) {
	before := map[compute.OrgID]compute.Credits{}
	for _, u := range c.Usage {
		before[u.Payer.Org] = h.view().Account(u.Payer.Org).Available()
	}
	h.send(c)
	for org, free := range before {
		if after := h.view().Account(org).Available(); after < min(free, 0) && !h.view().Settings().Meter {
			h.Errorf("a batch leaves organization %s %s credits of %s", org, after, free)
		}
	}
}

// published returns a world with a deployment of the organization ada that is published
// as "chat", for 1 and 2 credits per million tokens.
func published(t *testing.T) (*world, compute.ExecutionID) {
	t.Helper()
	w := newestWorld(t)
	id := w.deployment()
	w.must(command.SetModel{Actor: w.root, ID: "chat", Deployment: id, Prices: compute.TokenPrices{
		Prompt: compute.Credit, Completion: 2 * compute.Credit,
	}})
	return w, id
}

// TestModelsArePublished publishes a deployment, which cannot be ended then.
func TestModelsArePublished(t *testing.T) {
	w, id := published(t)
	set := command.SetModel{Actor: w.root, ID: "lab/chat:7b", Deployment: id}
	w.must(set)
	for name, bad := range map[string]func(*command.SetModel){
		"model_id":             func(c *command.SetModel) { c.ID = "no spaces" },
		"price":                func(c *command.SetModel) { c.Prices.Prompt = -1 },
		"deployment_not_found": func(c *command.SetModel) { c.Deployment = w.executionID() },
	} {
		c := set
		bad(&c)
		if r := w.do(c); r.Refusal == nil || r.Refusal.Detail != name {
			t.Errorf("%s: %+v", name, r.Refusal)
		}
	}
	c := set
	c.ID = id.String()
	w.refused(c, compute.CodeInvalid, "model_id") // It names the deployment itself.
	c = set
	c.Actor = w.ada
	w.refused(c, compute.CodeForbidden, "not_an_operator")
	stop := command.StopExecution{Actor: w.ada, Execution: id, Stop: compute.StopGraceful}
	w.refused(stop, compute.CodeConflict, "model_published")
	again, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := again.View().Model("chat"); !ok || m.Deployment != id || m.Org != w.org {
		t.Errorf("after a restore: %+v", m)
	}
	w.must(command.RemoveModel{Actor: w.root, ID: "chat"})
	w.must(command.RemoveModel{Actor: w.root, ID: "lab/chat:7b"})
	w.refused(command.RemoveModel{Actor: w.root, ID: "chat"}, compute.CodeNotFound, "model_not_found")
	w.must(stop)
}

// charges returns the charges of an organization.
func (w *world) charges(org compute.OrgID) (all []compute.LedgerEntry) {
	for e := range w.view().Ledger(org, 0) {
		if e.Kind == compute.LedgerCharge {
			all = append(all, *e)
		}
	}
	return all
}

// TestTokensAreChargedOnce settles tokens of two organizations in batches, some of them
// twice: each organization, model and minute has one line, and the sum is exact.
func TestTokensAreChargedOnce(t *testing.T) {
	w, _ := published(t)
	node := w.node("n1").ID
	ada, bob := compute.Payer{Org: w.org, User: w.ada.User}, compute.Payer{Org: w.other.Org, User: w.other.User}
	prices := compute.TokenPrices{Prompt: compute.Credit, Completion: 2 * compute.Credit / 3} // A third is lost nowhere.
	used := func(p compute.Payer, n int64) command.UsedTokens {
		return command.UsedTokens{Payer: p, Model: "chat", Prices: prices, Prompt: n, Completion: n, Requests: 1}
	}
	batch := command.SettleTokens{Node: node, Session: 5}
	start := w.view().Account(bob.Org).Balance
	want := compute.TokenCost{}
	for minute := range 3 {
		w.pass(time.Minute)
		for i := range 10 {
			batch.Number++
			batch.Usage = []command.UsedTokens{used(bob, int64(7*i+minute)), used(bob, 1), used(ada, 1)}
			for _, u := range batch.Usage[:2] {
				want = want.Plus(prices.Cost(u.Prompt, u.Completion))
			}
			w.must(batch)
			if r := w.must(batch); !r.Repeat {
				t.Fatalf("a repeat is %+v", r)
			}
		}
	}
	if n := len(w.charges(bob.Org)); n != 2 {
		t.Errorf("%d charges before the last minute is over", n)
	}
	w.pass(time.Minute)
	w.must(command.Tick{Term: w.term})
	lines := w.charges(bob.Org)
	if len(lines) != 3 || len(w.charges(ada.Org)) != 3 {
		t.Errorf("the charges are %+v", lines)
	}
	if got := start - w.view().Account(bob.Org).Balance; got != want.Whole || got == 0 {
		t.Errorf("charged %s, want %s and %d millionths", got, want.Whole, want.Rest)
	}
	total := w.view().TokenTotals(bob.Org)
	if len(total) != 1 || total[0].Rest != want.Rest || total[0].Charged != want.Whole || total[0].Requests != 60 {
		t.Errorf("the total is %+v", total)
	}
	if held := w.view().Account(bob.Org).Held; held != 0 {
		t.Errorf("%s stays held", held)
	}
	gap := batch
	gap.Number += 2
	w.refused(gap, compute.CodeConflict, "session_ended")
	gap.Session, gap.Number = 4, 1
	w.refused(gap, compute.CodeConflict, "session_ended")
	gap.Session = 6
	w.must(gap)
}

// TestTokensReportBudgets checks that tokens which reach the level of a budget are
// reported, each level once, although no execution is charged, and that a report is kept
// until it is delivered or given up.
func TestTokensReportBudgets(t *testing.T) {
	w, _ := published(t)
	node, bob := w.node("n1").ID, compute.Payer{Org: w.other.Org, User: w.other.User}
	for _, of := range []compute.UserID{{}, bob.User} {
		w.must(command.SetBudget{Actor: w.other, Budget: compute.Budget{
			Org: bob.Org, User: of, MaxCredits: 100, URL: "https://example.com/b",
		}})
	}
	batch, seen := command.SettleTokens{Node: node, Session: 5}, map[string]bool{}
	use := func(n int64) (levels []int) {
		batch.Number++
		batch.Usage = []command.UsedTokens{{
			Payer: bob, Model: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit}, Prompt: n, Requests: 1,
		}}
		w.must(batch)
		w.pass(time.Minute)
		w.must(command.Tick{Term: w.term})
		for c := range w.view().DueCallbacks(w.now) {
			if c.Org != bob.Org || !c.Execution.IsZero() || seen[c.WebhookID()] {
				t.Errorf("a report is %+v", c)
			}
			seen[c.WebhookID()] = true
			levels = append(levels, c.Alert.Level)
			d := compute.Delivery{Org: c.Org, Number: c.Number, At: w.now, Delivered: len(levels) == 1}
			w.must(command.RecordDeliveries{Term: w.view().Term(), Deliveries: []compute.Delivery{d}})
		}
		return levels
	}
	for i, step := range []struct {
		tokens int64
		want   []int
	}{{49, nil}, {1, []int{50, 50}}, {10, nil}, {90, []int{100, 100}}, {90, nil}} {
		if got := use(step.tokens); !slices.Equal(got, step.want) {
			t.Errorf("step %d: reported %v, want %v", i, got, step.want)
		}
	}
	if n := len(slices.Collect(w.view().Callbacks())); n != 0 {
		t.Errorf("%d reports are kept", n)
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}

// TestTokenHolds sets credits aside for a node's requests, as much as there is, and
// releases them when the node begins again, is idle or is gone.
func TestTokenHolds(t *testing.T) {
	w, _ := published(t)
	n := w.node("n1")
	bob := compute.Payer{Org: w.other.Org, User: w.other.User}
	batch := command.SettleTokens{Node: n.ID, Session: 5}
	hold := func(least, most compute.Credits) compute.Credits {
		batch.Number++
		batch.Holds = []command.WantedHold{{Payer: bob, Least: least, Most: most}}
		w.must(batch)
		return w.view().TokenHold(n.ID, bob)
	}
	available := w.view().Account(bob.Org).Available()
	for _, test := range []struct{ least, most, want compute.Credits }{
		{1, 8, 8},
		{5, 8, 8},
		{10, available + 1, 10},
		{available, available, available},
		{available + 1, available + 1, available},
		{0, 3, 3},
	} {
		if got := hold(test.least, test.most); got != test.want {
			t.Errorf("%d to %d: %d", test.least, test.most, got)
		}
	}
	if hold(available, available); w.view().LacksTokens(bob, 1) == nil {
		t.Error("more is available than there is")
	}
	w.must(command.SetBudget{Actor: w.other, Budget: compute.Budget{Org: bob.Org, User: bob.User, MaxCredits: 20, Enforce: true}})
	if refusal := w.view().LacksTokens(bob, 1); refusal == nil || refusal.Detail != "ceiling_reached" {
		t.Errorf("over a ceiling: %v", refusal)
	}
	batch.Session, batch.Number = 6, 0
	if got := hold(20, 20); got != 20 || w.view().Account(bob.Org).Held != 20 {
		t.Errorf("a new session has %s", got)
	}
	// The use is above the hold and above the ceiling: the hold alone is charged.
	batch.Number++
	batch.Holds = nil
	batch.Usage = []command.UsedTokens{{Payer: bob, Model: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit}, Prompt: 25, Requests: 1}}
	if got := w.must(batch); got.Uncharged != 5 || got.Repeat {
		t.Errorf("beyond the hold: %+v", got)
	}
	if got := w.must(batch); got.Uncharged != 5 || !got.Repeat {
		t.Errorf("a repeat: %+v", got)
	}
	if got := w.view().Account(bob.Org).Held; got != 20 {
		t.Errorf("%s is held", got)
	}
	batch.Usage = nil
	if got := hold(1, 1); got != 0 {
		t.Errorf("above the ceiling %s is held", got)
	}
	w.pass(time.Minute)
	w.must(command.Tick{Term: w.term})
	w.must(command.RemoveBudget{Actor: w.other, Org: bob.Org, User: bob.User})
	if got := hold(7, 7); got != 7 || w.view().Account(bob.Org).Held != 7 {
		t.Errorf("%s is held", got)
	}
	// A node that is cut off may still use its hold for a while.
	w.must(command.SetNodeState{Term: w.term, Node: n.ID, State: compute.NodeDown})
	w.pass(4 * time.Minute)
	w.must(command.Tick{Term: w.term})
	if got := w.view().Account(bob.Org).Held; got != 7 {
		t.Errorf("%s is held by a node that is down", got)
	}
	w.pass(2 * time.Minute)
	w.must(command.Tick{Term: w.term})
	if got := w.view().Account(bob.Org).Held; got != 0 {
		t.Errorf("%s is held by a node that is gone", got)
	}
}

// TestLateTokensOverdrawNothing has a node that was cut off report its use after its hold was
// released and another node has used the credits: an organization never owes anything.
func TestLateTokensOverdrawNothing(t *testing.T) {
	w, _ := published(t)
	one, two := w.node("n1").ID, w.node("n2").ID
	bob := compute.Payer{Org: w.other.Org, User: w.other.User}
	all := w.view().Account(bob.Org).Available()
	hold := []command.WantedHold{{Payer: bob, Least: all, Most: all}}
	used := func(n compute.Credits) []command.UsedTokens {
		return []command.UsedTokens{{
			Payer: bob, Model: "chat", Prices: compute.TokenPrices{Prompt: compute.Credit}, Prompt: int64(n), Requests: 1,
		}}
	}
	w.must(command.SettleTokens{Node: one, Session: 5, Number: 1, Holds: hold})
	w.must(command.SetNodeState{Term: w.term, Node: one, State: compute.NodeDown})
	w.must(command.Tick{Term: w.term})
	w.must(command.SettleTokens{Node: two, Session: 6, Number: 1, Holds: hold})
	if got := w.view().TokenHold(two, bob); got != 0 {
		t.Errorf("while another node may use all credits, %s are held", got)
	}
	w.pass(6 * time.Minute)
	w.must(command.Tick{Term: w.term})
	w.must(command.SettleTokens{Node: two, Session: 6, Number: 2, Holds: hold})
	w.must(command.SettleTokens{Node: two, Session: 6, Number: 3, Usage: used(all - 10)})
	late := command.SettleTokens{Node: one, Session: 5, Number: 2, Usage: used(all)}
	if got := w.must(late); got.Uncharged != all {
		t.Errorf("late use that nothing covers: %+v", got)
	}
	w.must(command.SettleTokens{Node: two, Session: 6, Number: 4, Holds: []command.WantedHold{{Payer: bob}}})
	late.Number++
	if got := w.must(late); got.Uncharged != all-10 {
		t.Errorf("late use that free credits cover in part: %+v", got)
	}
	w.pass(2 * time.Minute)
	w.must(command.Tick{Term: w.term})
	if a := w.view().Account(bob.Org); a.Balance != 0 || a.Held != 0 {
		t.Errorf("the balance is %s, and %s are held", a.Balance, a.Held)
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}
