package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// hours returns a change of an execution's time limit.
func hours(n int) func(*compute.Execution) {
	return func(e *compute.Execution) { e.Timeout = time.Duration(n) * time.Hour }
}

func TestLongExecutionsHoldMoreAsTheyRun(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4", hours(2))
	const hour, ten = 360_000, 60_000 // Micro-credits of a t4.
	w.wantMoney(100*compute.Credit, hour)
	w.place("n3", id)
	w.must(w.started(id))
	w.pass(58 * time.Minute)
	w.wantMoney(100*compute.Credit, hour)
	w.pass(time.Minute) // A minute before the end of the hold.
	w.wantMoney(100*compute.Credit, hour-6000+ten)
	w.pass(30 * time.Minute)
	if held := w.account().Held; held < 89*6000 || held > 100*6000 {
		t.Errorf("held %d after 89 minutes", held)
	}
	w.pass(time.Hour)
	w.wantMoney(100*compute.Credit, 2*hour) // Never more than the time limit.
	w.must(w.ended(id, compute.StatusFailed, 2*time.Hour+time.Second))
	w.wantMoney(100*compute.Credit-2*hour, 0)
}

func TestHoldGrowsAfterAClockJump(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4", hours(10))
	w.place("n3", id)
	for range 60 { // Five hours without a Tick.
		w.now = w.now.Add(5 * time.Minute)
		w.do()
	}
	w.must(command.Tick{Term: 1})
	w.wantMoney(100*compute.Credit, 5*360_000+60_000)
}

// TestExhaustedCreditsStopGracefully is the stop before format.Rotation, without a warning
// and with time left.
func TestExhaustedCreditsStopGracefully(t *testing.T) {
	w := newPoorWorld(t, 400_000, "n3", "t4", "t4") // An hour and six minutes of a t4.
	id := w.submit("t4", hours(2))
	w.place("n3", id)
	w.must(w.started(id))
	w.pass(58 * time.Minute)
	if w.get(id).Stop != compute.StopNone {
		t.Fatal("stopped too early")
	}
	w.pass(time.Minute)
	w.wantStatus(id, compute.StatusRunning, compute.ReasonCredits)
	if w.get(id).Stop != compute.StopGraceful {
		t.Fatal("not stopped")
	}
	end := w.ended(id, compute.StatusCancelled, 59*time.Minute)
	end.Outcome.Reason = compute.ReasonStopped
	w.must(end)
	w.wantStatus(id, compute.StatusCancelled, compute.ReasonCredits)
	w.wantMoney(400_000-59*6000, 0)
	if d := w.get(id).Detail; !strings.Contains(d, "credits are exhausted") {
		t.Errorf("detail is %q", d)
	}
	c := w.python("t4.2x")
	c.Execution.Timeout = 10 * time.Minute
	w.refused(c, compute.CodeForbidden, "credits_exhausted")
}

// TestExhaustedCreditsAreUsedUp checks that work is warned when the credits do not pay for
// another extension, extended by what is left of them, and then stopped.
func TestExhaustedCreditsAreUsedUp(t *testing.T) {
	w := newPoorWorld(t, 400_000, "n3", "t4", "t4") // An hour and 6:40 minutes of a t4.
	w.upgrade()
	id := w.submit("t4", hours(2))
	w.place("n3", id)
	w.must(w.started(id))
	w.pass(59 * time.Minute)
	w.wantMoney(400_000, 400_000)
	if e := w.get(id); e.Stop != compute.StopNone || e.CreditsEnd.IsZero() || !strings.Contains(e.Detail, "credits end in about 8m") {
		t.Fatalf("stop %d, credits end at %s, %q", e.Stop, e.CreditsEnd, e.Detail)
	}
	w.pass(7 * time.Minute)
	if e := w.get(id); e.Stop != compute.StopNone {
		t.Fatal("stopped too early")
	}
	w.pass(10 * time.Second)
	w.wantStatus(id, compute.StatusRunning, compute.ReasonCredits)
	if e := w.get(id); e.Stop != compute.StopGraceful || !strings.Contains(e.Detail, "credits are exhausted") {
		t.Fatalf("stop %d, %q", e.Stop, e.Detail)
	}
	end := w.ended(id, compute.StatusCancelled, 66*time.Minute)
	end.Outcome.Reason = compute.ReasonStopped
	w.must(end)
	w.wantMoney(400_000-66*6000, 0)
}

// TestCreditsThatEndApart checks that work which a node stopped while it was cut off, at the end that
// its record gave, is paid for whole, although the leader could not stop it.
func TestCreditsThatEndApart(t *testing.T) {
	w := newPoorWorld(t, 400_000, "n3", "t4", "t4") // An hour and 6:40 minutes of a t4.
	w.upgrade()
	id := w.submit("t4", hours(2))
	w.place("n3", id)
	w.must(w.started(id))
	w.pass(59 * time.Minute)
	e := w.get(id)
	end := w.ended(id, compute.StatusCancelled, e.CreditsEnd.Sub(e.PlacedAt)+e.StopGrace)
	end.Outcome.Reason, end.Outcome.Detail = compute.ReasonCredits, "credits ended while the cluster was not reached"
	w.must(end)
	w.wantStatus(id, compute.StatusCancelled, compute.ReasonCredits)
	w.wantMoney(0, 0)
	if d := w.get(id).Detail; !strings.Contains(d, "not reached") {
		t.Errorf("detail is %q", d)
	}
}

func TestMeterNeverRefuses(t *testing.T) {
	w := newEmptyWorld(t)
	s := settings()
	s.SignupGrant, s.Meter = 0, true
	w.bootstrap(s)
	w.addNode("n3", "t4", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	id := w.submit("t4", hours(2))
	w.place("n3", id)
	w.pass(2 * time.Hour)
	if w.get(id).Stop != compute.StopNone {
		t.Fatal("stopped for credits")
	}
	w.must(w.ended(id, compute.StatusCompleted, 2*time.Hour))
	w.wantMoney(-720_000, 0)
}

func TestCeilingShortensTheTimeLimit(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		ceiling compute.Credits
		want    time.Duration
		held    compute.Credits
	}{
		{"none", time.Minute, 0, time.Minute, 6000},
		{"enough", time.Minute, 6000, time.Minute, 6000},
		{"more than enough", time.Minute, compute.Credit, time.Minute, 6000},
		{"half", time.Minute, 3000, 30 * time.Second, 3000},
		{"to the millisecond", time.Minute, 101, 1010 * time.Millisecond, 101},
		{"beyond the first hold", 2 * time.Hour, 500_000, 5000 * time.Second, 360_000},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.submit("t4", func(e *compute.Execution) {
				e.Timeout, e.MaxCredits = test.timeout, test.ceiling
			})
			e := w.get(id)
			if e.Timeout != test.want || e.Held != test.held {
				t.Fatalf("time limit %s, held %d; want %s, %d", e.Timeout, e.Held, test.want, test.held)
			}
			if said := strings.Contains(e.Detail, "max_credits"); said != (test.want != test.timeout) {
				t.Errorf("detail is %q", e.Detail)
			}
			w.place("n3", id)
			w.pass(3 * time.Hour)
			end := w.ended(id, compute.StatusFailed, 3*time.Hour)
			end.Outcome.Reason = compute.ReasonTimeout
			w.must(end)
			if e := w.get(id); test.ceiling > 0 && e.Billed > test.ceiling {
				t.Errorf("billed %d over the ceiling of %d", e.Billed, test.ceiling)
			}
		})
	}
}

// newGraceWorld returns a world in which code has ten seconds to end.
func newGraceWorld(t testing.TB) *world {
	w := newWorld(t)
	s := settings()
	s.StopGrace = 10 * time.Second
	w.must(command.SetSettings{Term: w.term, Settings: s})
	return w
}

func TestGraceIsPaidFor(t *testing.T) {
	tests := []struct {
		name    string
		timeout time.Duration
		ceiling compute.Credits
		want    time.Duration
		held    compute.Credits
		ran     time.Duration
		billed  compute.Credits
	}{
		{"within the time limit", time.Minute, 0, time.Minute, 7000, time.Second, 100},
		{"within the grace", time.Minute, 0, time.Minute, 7000, 68 * time.Second, 6800},
		{"beyond the grace", time.Minute, 0, time.Minute, 7000, 2 * time.Minute, 7000},
		{"ceiling for both", time.Minute, 7000, time.Minute, 7000, 70 * time.Second, 7000},
		{"ceiling for part of the grace", time.Minute, 6500, 55 * time.Second, 6500, 65 * time.Second, 6500},
		{"ceiling for a part", time.Minute, 3000, 20 * time.Second, 3000, 30 * time.Second, 3000},
		{"ceiling within the grace", time.Minute, 500, time.Second, 500, 11 * time.Second, 500},
		{"ceiling for the least", time.Minute, 100, time.Second, 100, 11 * time.Second, 100},
		{"short, ceiling within the grace", time.Second / 2, 50, time.Second / 2, 50, 10 * time.Second, 50},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newGraceWorld(t)
			id := w.submit("t4", func(e *compute.Execution) {
				e.Timeout, e.MaxCredits = test.timeout, test.ceiling
			})
			e := w.get(id)
			if e.Timeout != test.want || e.Held != test.held {
				t.Fatalf("time limit %s, held %d; want %s, %d", e.Timeout, e.Held, test.want, test.held)
			}
			if said := strings.Contains(e.Detail, "max_credits"); said != (test.want != test.timeout) {
				t.Errorf("detail is %q", e.Detail)
			}
			w.must(command.SetSettings{Term: w.term, Settings: settings()}) // The grace was fixed at submit.
			w.complete(id, "n3", test.ran)
			if b := w.get(id).Billed; b != test.billed {
				t.Errorf("billed %d, want %d", b, test.billed)
			}
		})
	}
	w := newGraceWorld(t)
	c := w.python("t4")
	c.Execution.MaxCredits = 99
	w.refused(c, compute.CodeInvalid, "max_credits")
}

func TestHoldStaysTheGraceAhead(t *testing.T) {
	w := newGraceWorld(t)
	const hour, ten, grace = 360_000, 60_000, 1000 // Micro-credits of a t4.
	id := w.submit("t4", hours(2))
	w.wantMoney(100*compute.Credit, hour+grace)
	w.place("n3", id)
	w.pass(58 * time.Minute)
	w.wantMoney(100*compute.Credit, hour+grace)
	w.pass(time.Minute)
	w.wantMoney(100*compute.Credit, hour-6000+ten+grace)
	w.pass(2 * time.Hour)
	w.wantMoney(100*compute.Credit, 2*hour+grace)
	w.must(w.ended(id, compute.StatusFailed, 2*time.Hour+9*time.Second))
	w.wantMoney(100*compute.Credit-2*hour-900, 0)
}

func TestGrantsAndPrices(t *testing.T) {
	w := newWorld(t)
	grant := func(amount compute.Credits) command.Grant {
		return command.Grant{Actor: w.root, Org: w.org, Amount: amount, Note: "thanks"}
	}
	w.must(grant(5))
	w.wantMoney(100*compute.Credit+5, 0)
	w.refused(grant(0), compute.CodeInvalid, "amount")
	w.refused(grant(-1), compute.CodeInvalid, "amount")
	w.refused(grant(1<<62), compute.CodeInvalid, "amount")
	left := compute.MaxAmount - 100*compute.Credit - 5 // A balance has a limit.
	if r := w.do(grant(left + 1)); r.Refusal == nil || !strings.Contains(r.Refusal.Message, "at most "+left.String()) {
		t.Errorf("one too many: %+v", r.Refusal)
	}
	w.refused(command.Grant{Actor: w.root, Org: compute.OrgID{UUID: w.uuid()}, Amount: 1},
		compute.CodeNotFound, "org_unknown")
	w.refused(command.Grant{Actor: w.ada, Org: w.org, Amount: 1}, compute.CodeForbidden, "not_an_operator")

	id := w.submit("t4")
	set := func(name string, p compute.Price) command.SetPrices {
		return command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{name: p}}
	}
	w.must(set("t4", 1))
	if p := w.view().Prices(); p["t4"] != 1 || p["h100"] != 900 {
		t.Errorf("prices are %v", p)
	}
	w.complete(id, "n3", time.Second)
	if b := w.get(id).Billed; b != 100 {
		t.Errorf("billed %d: the price is fixed at submit", b)
	}
	w.refused(set("T4", 1), compute.CodeInvalid, "price")
	w.refused(set("t4.2x", 1), compute.CodeInvalid, "price")
	w.refused(set("t4", -1), compute.CodeInvalid, "price")
	w.refused(set("t4", 1<<40), compute.CodeInvalid, "price")
	refused := set("t4", 1)
	refused.Actor = w.ada
	w.refused(refused, compute.CodeForbidden, "not_an_operator")
}

func TestFreeWorkHoldsNothing(t *testing.T) {
	w := newWorld(t)
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"t4": 0}})
	id := w.submit("t4", hours(20))
	w.wantMoney(100*compute.Credit, 0)
	w.complete(id, "n3", time.Hour)
	w.wantMoney(100*compute.Credit, 0)
}

func TestMonthsOfAnAccount(t *testing.T) {
	w := newWorld(t)
	w.complete(w.submit("t4"), "n3", time.Second)
	if a := w.account(); a.Month != 2026*12+2 || a.InMonth != 100 {
		t.Errorf("in month %d: %d", a.Month, a.InMonth)
	}
	w.pass(3 * time.Hour) // Into April.
	w.complete(w.submit("t4"), "n3", 2*time.Second)
	if a := w.account(); a.Month != 2026*12+3 || a.InMonth != 200 || a.Charged != 300 {
		t.Errorf("in month %d: %d of %d", a.Month, a.InMonth, a.Charged)
	}
}

func TestRetentionKeepsTheLedger(t *testing.T) {
	w := newEmptyWorld(t)
	s := settings()
	s.MaxFinished, s.KeepFinished = 3, time.Hour
	w.bootstrap(s)
	w.addNode("n3", "t4", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	var ids []compute.ExecutionID
	for range 5 {
		id := w.submit("t4", func(e *compute.Execution) { e.CallbackURLs = []string{"https://x"} })
		w.complete(id, "n3", time.Second)
		ids = append(ids, id)
	}
	live := w.submit("t4")
	w.must(command.Tick{Term: 1})
	known := func() (n int) {
		for range w.view().History(w.org, fsm.HistoryFilter{}) {
			n++
		}
		return n
	}
	if known() != 4 {
		t.Errorf("%d executions are known, want 3 and the live one", known())
	}
	if _, ok := w.view().AnyExecution(ids[1]); ok || len(w.view().Attempts(ids[1])) != 0 {
		t.Error("the oldest is still known")
	}
	w.pass(time.Hour + time.Minute)
	if known() != 1 {
		t.Errorf("%d executions are known, want the live one", known())
	}
	w.get(live)
	for c := range w.view().Callbacks() {
		t.Errorf("callback of %s is left", c.Execution)
	}
	charges := 0
	for e := range w.view().Ledger(w.org, 0) {
		if e.Kind == compute.LedgerCharge {
			charges++
		}
	}
	if charges != 5 {
		t.Errorf("the ledger has %d charges, want 5", charges)
	}
}

func TestRetentionWaitsForTheParent(t *testing.T) {
	w := newEmptyWorld(t)
	s := settings()
	s.KeepFinished = time.Minute
	w.bootstrap(s)
	w.addNode("n3", "t4", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.t4"))
	c := w.children(parent)
	w.complete(c[0].ID, "n3", time.Second)
	w.place("n3", c[1].ID)
	w.pass(time.Hour)
	if len(w.children(parent)) != 2 {
		t.Fatal("a child of a live parent was forgotten")
	}
	w.must(w.ended(c[1].ID, compute.StatusFailed, time.Second))
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)
	w.pass(time.Hour)
	if _, ok := w.view().AnyExecution(parent); ok {
		t.Error("the parent is still known")
	}
}

func TestClockNeverGoesBackNorJumps(t *testing.T) {
	w := newWorld(t)
	w.now = w.now.Add(-time.Hour)
	w.do()
	if w.view().Now() != epoch {
		t.Errorf("the clock went back to %s", w.view().Now())
	}
	w.now = epoch.Add(240 * time.Hour)
	w.do()
	if want := epoch.Add(5 * time.Minute); w.view().Now() != want {
		t.Errorf("the clock jumped to %s, want %s", w.view().Now(), want)
	}
}

// TestRetentionPassesChildren checks that finished children of a running
// selection, which stay, do not block executions that finished after them.
func TestRetentionPassesChildren(t *testing.T) {
	w := newestWorld(t)
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	child := w.children(parent)[0].ID
	w.complete(child, nodeOf(w.get(child)), time.Second)
	const others = fsm.RetirePerTick + 5
	for range others {
		w.complete(w.submit("t4"), "n3", time.Millisecond)
	}
	s := w.view().Settings()
	s.MaxFinished, s.KeepFinished, s.Forget = 1, 0, true
	w.must(command.SetSettings{Term: w.term, Settings: s})
	if r := w.must(command.Tick{Term: w.term}); r.Count != fsm.RetirePerTick {
		t.Errorf("the first tick forgot %d, want %d: nobody asks for a second one", r.Count, fsm.RetirePerTick)
	}
	if r := w.must(command.Tick{Term: w.term}); r.Count != others-fsm.RetirePerTick {
		t.Errorf("the second tick forgot %d, want %d", r.Count, others-fsm.RetirePerTick)
	}
	w.get(child)
}
