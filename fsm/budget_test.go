package fsm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// limit sets a budget.
func (w *world) limit(b compute.Budget) {
	w.Helper()
	b.Org, b.Enforce = w.org, true
	w.must(command.SetBudget{Actor: w.ada, Budget: b})
}

// TestCeilings checks that work which may exceed the ceiling of its key, of its member
// or of its organization is refused, and that work that fits, or is free, is not.
func TestCeilings(t *testing.T) {
	w := newestWorld(t)
	key := command.Actor{User: w.ada.User, Org: w.org, Key: compute.KeyID{UUID: w.uuid()}}
	w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key.Key, Lookup: "k"}, MaxCredits: 6000})
	minute := func(a command.Actor) command.Submit { // 6,000 micro-credits.
		c := w.python("t4")
		c.Actor, c.Op = a, command.Op{} // Refusals are not remembered.
		return c
	}
	first := w.must(minute(key)).Execution
	w.refused(minute(key), compute.CodeForbidden, "ceiling_reached")
	w.must(minute(w.ada)) // Without the key it counts toward nothing yet.
	w.complete(first, "n3", 30*time.Second)
	w.refused(minute(key), compute.CodeForbidden, "ceiling_reached") // 3,000 are left.
	half := minute(key)
	half.Execution.Timeout = 30 * time.Second
	w.must(half)

	w.limit(compute.Budget{User: w.ada.User, MaxCredits: 9000})
	w.refused(minute(w.ada), compute.CodeForbidden, "ceiling_reached") // Both live ones hold 9,000.
	w.must(command.RemoveBudget{Actor: w.ada, Org: w.org, User: w.ada.User})
	w.must(minute(w.ada))
	w.limit(compute.Budget{MaxCredits: 1})
	w.refused(minute(w.ada), compute.CodeForbidden, "ceiling_reached")
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}

// TestCeilingsHoldWhileMetered checks that an organization that set itself a ceiling
// has it although credits are not enforced.
func TestCeilingsHoldWhileMetered(t *testing.T) {
	w := newestWorld(t)
	w.must(command.SetBillingMode{Actor: w.root, Meter: true})
	w.limit(compute.Budget{MaxCredits: 5999})
	c := w.python("t4")
	c.Op = command.Op{}
	w.refused(c, compute.CodeForbidden, "ceiling_reached")
}

// TestLongWorkStopsAtItsCeiling checks that work which runs on is warned, and stopped
// before it exceeds the ceiling, and that a ceiling is never exceeded.
func TestLongWorkStopsAtItsCeiling(t *testing.T) {
	w := newestWorld(t)
	const ceiling = 400_000 // An hour is 360,000, ten minutes are 60,000.
	w.limit(compute.Budget{MaxCredits: ceiling, URL: "https://example.com/b"})
	id := w.submit("t4", hours(9))
	w.place("n3", id)
	w.must(w.started(id))
	w.pass(time.Hour)
	e := w.get(id)
	if end := e.PlacedAt.Add(ceiling * time.Minute / 6000); e.Stop != compute.StopNone || e.CreditsEnd.Sub(end).Abs() > time.Second || e.Held != ceiling {
		t.Fatalf("it is not warned: stop %d, held %s, credits end at %s, not %s", e.Stop, e.Held, e.CreditsEnd, end)
	}
	w.pass(5 * time.Minute)
	if e = w.get(id); e.Stop != compute.StopNone {
		t.Fatalf("it is stopped after 65 minutes: %q", e.Detail)
	}
	w.pass(70 * time.Second)
	e = w.get(id)
	if e.Stop != compute.StopGraceful || e.Reason != compute.ReasonCredits || !strings.Contains(e.Detail, "ceiling") {
		t.Fatalf("it goes on: stop %d, reason %s, %q", e.Stop, e.Reason, e.Detail)
	}
	alerts := w.view().CallbacksOf(id)
	if len(alerts) != 2 || alerts[0].Alert.Level != 80 || alerts[1].Alert.Level != 100 || !alerts[1].Alert.Stopped {
		t.Errorf("%d alerts, want one of 80 %% while it runs, one of its stop", len(alerts))
	}
	w.must(w.ended(id, compute.StatusCancelled, 3*time.Hour)) // It was cut off meanwhile.
	b, _ := w.view().Budget(w.org, compute.KeyID{}, compute.UserID{})
	if charged, held := w.view().Spent(b); charged > ceiling || held != 0 || charged != w.get(id).Billed {
		t.Errorf("%s charged and %s held of %d", charged, held, ceiling)
	}
}

// TestWorkIsWarnedBeforeTheFirstExtension checks that work whose ceiling, or whose
// organization's credits, end with its first hold is warned too, and then stopped.
func TestWorkIsWarnedBeforeTheFirstExtension(t *testing.T) {
	limited, poor := newestWorld(t), newPoorWorld(t, 360_000, "n3", "t4")
	limited.limit(compute.Budget{MaxCredits: 360_000})
	poor.upgrade()
	for name, w := range map[string]*world{"ceiling": limited, "credits": poor} {
		id := w.submit("t4", hours(9))
		w.place("n3", id)
		w.must(w.started(id))
		w.pass(59 * time.Minute)
		if e := w.get(id); e.Stop != compute.StopNone || e.CreditsEnd != e.PlacedAt.Add(time.Hour) || !strings.Contains(e.Detail, "1m0s") {
			t.Errorf("%s: stop %d, credits end at %s, %q", name, e.Stop, e.CreditsEnd, e.Detail)
		}
		w.pass(29 * time.Second)
		if e := w.get(id); e.Stop != compute.StopNone {
			t.Errorf("%s: it is stopped too early", name)
		}
		w.pass(time.Second)
		if e := w.get(id); e.Stop != compute.StopGraceful || e.Reason != compute.ReasonCredits || e.Held != 360_000 {
			t.Errorf("%s: stop %d for %s, %s held", name, e.Stop, e.Reason, e.Held)
		}
		w.must(w.ended(id, compute.StatusCancelled, 3*time.Hour)) // It was cut off meanwhile.
		if got := w.get(id).Billed; got != 360_000 {
			t.Errorf("%s: billed %s", name, got)
		}
	}
}

// TestLongWorkIsWarned checks that an execution says that the ceiling will not pay for
// another extension, before it is stopped.
func TestLongWorkIsWarned(t *testing.T) {
	w := newestWorld(t)
	w.limit(compute.Budget{MaxCredits: 425_000}) // For an hour and one extension.
	id := w.submit("t4", hours(9))
	w.place("n3", id)
	w.must(w.started(id))
	w.pass(time.Hour)
	if e := w.get(id); e.Stop != compute.StopNone || e.CreditsEnd.IsZero() || !strings.Contains(e.Detail, "ceiling") {
		t.Errorf("stop %d, credits end at %s, %q", e.Stop, e.CreditsEnd, e.Detail)
	}
}

// TestBudgetAlerts checks that each level is reported once, the highest one where
// several are reached together, and again in the next month.
func TestBudgetAlerts(t *testing.T) {
	w := newestWorld(t)
	w.must(command.SetBudget{Actor: w.ada, Budget: compute.Budget{
		Org: w.org, MaxCredits: 10_000, Monthly: true, URL: "https://example.com/b",
	}})
	run := func(d time.Duration) (levels []int) {
		id := w.submit("t4")
		w.complete(id, "n3", d)
		for _, c := range w.view().CallbacksOf(id) {
			levels = append(levels, c.Alert.Level)
		}
		return levels
	}
	want := func(name string, got []int, levels ...int) {
		t.Helper()
		if len(got) != len(levels) || len(got) > 0 && got[0] != levels[0] {
			t.Errorf("%s: reported %v, want %v", name, got, levels)
		}
	}
	want("49 %", run(49*time.Second))
	want("50 %", run(time.Second), 50)
	want("100 % at once", run(50*time.Second), 100)
	want("more", run(time.Minute)) // It is no ceiling.
	w.pass(32 * 24 * time.Hour)
	want("the next month", run(time.Minute), 50)
}

// TestRunningWorkAlerts checks that levels of a budget are reported while the work that
// reaches them runs on, once each, also by several together, and not again by its charge.
func TestRunningWorkAlerts(t *testing.T) {
	w := newestWorld(t)
	w.must(command.SetBudget{Actor: w.ada, Budget: compute.Budget{
		Org: w.org, MaxCredits: 1_440_000, URL: "https://example.com/b", // Two for two hours.
	}})
	first, second := w.submit("t4", hours(9)), w.submit("t4", hours(9))
	w.place("n3", first)
	w.place("n3", second)
	w.must(w.started(first))
	w.must(w.started(second))
	levels := func() (out []int) {
		for _, id := range []compute.ExecutionID{first, second} {
			for _, c := range w.view().CallbacksOf(id) {
				if a := c.Alert; a.Charged < a.MaxCredits/100*compute.Credits(a.Level) {
					t.Errorf("%d %% are reported with %s of %s", a.Level, a.Charged, a.MaxCredits)
				}
				out = append(out, c.Alert.Level)
			}
		}
		slices.Sort(out)
		return out
	}
	for _, step := range []struct {
		pass time.Duration
		want []int
	}{
		{55 * time.Minute, nil},
		{15 * time.Minute, []int{50}},
		{45 * time.Minute, []int{50, 80}},
		{15 * time.Minute, []int{50, 80, 100}},
		{time.Hour, []int{50, 80, 100}},
	} {
		w.pass(step.pass)
		if got := levels(); !slices.Equal(got, step.want) {
			t.Errorf("after %s more %v are reported, want %v", step.pass, got, step.want)
		}
	}
	b, _ := w.view().Budget(w.org, compute.KeyID{}, compute.UserID{})
	if charged, _ := w.view().Spent(b); charged != 0 {
		t.Errorf("%s are charged while it runs", charged)
	}
	w.must(w.ended(first, compute.StatusCompleted, 3*time.Hour))
	w.must(w.ended(second, compute.StatusCompleted, 3*time.Hour))
	if got := levels(); len(got) != 3 {
		t.Errorf("the charge reported again: %v", got)
	}
	w.limit(compute.Budget{MaxCredits: 5_000_000, URL: "https://example.com/b"}) // 43 % are charged.
	lost := w.submit("t4", hours(9))
	w.place("n3", lost)
	w.must(w.started(lost))
	w.pass(100 * time.Minute)
	b, _ = w.view().Budget(w.org, compute.KeyID{}, compute.UserID{})
	if b.Level != 50 {
		t.Errorf("level %d is reported", b.Level)
	}
	kept := w.submit("t4", hours(9))
	w.place("n3", kept)
	w.must(w.started(kept))
	w.pass(100 * time.Minute)
	w.must(w.ended(lost, compute.StatusSystemFailure, 4*time.Hour))
	if b, _ = w.view().Budget(w.org, compute.KeyID{}, compute.UserID{}); b.Level != 50 {
		t.Errorf("level %d is left, which other work has reached too", b.Level)
	}
	w.must(w.ended(kept, compute.StatusSystemFailure, 2*time.Hour))
	if b, _ = w.view().Budget(w.org, compute.KeyID{}, compute.UserID{}); b.Level != 0 {
		t.Errorf("level %d stays, and will not be reported when it is reached", b.Level)
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}

// TestBudgetRights checks which actors may set which budgets.
func TestBudgetRights(t *testing.T) {
	w := newestWorld(t)
	admin, member := w.addUser("cleo"), w.addUser("dan")
	for who, role := range map[*command.Actor]compute.OrgRole{&admin: compute.OrgAdmin, &member: compute.OrgMember} {
		w.must(command.SetMember{Actor: w.root, Org: w.org, User: who.User, Role: role})
		who.Org = w.org
	}
	key := compute.KeyID{UUID: w.uuid()}
	w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key, Lookup: "k"}, MaxCredits: 10})
	set := func(a command.Actor, b compute.Budget) command.SetBudget {
		b.Org, b.MaxCredits = w.org, 5
		return command.SetBudget{Actor: a, Budget: b}
	}
	w.must(set(w.ada, compute.Budget{}))
	w.must(set(w.ada, compute.Budget{User: member.User}))
	w.must(set(admin, compute.Budget{Key: key, Enforce: true}))
	w.refused(set(admin, compute.Budget{}), compute.CodeForbidden, "role_too_low")
	w.refused(set(admin, compute.Budget{User: admin.User}), compute.CodeForbidden, "role_too_low")
	w.refused(set(member, compute.Budget{Key: key}), compute.CodeForbidden, "role_too_low")
	w.refused(set(w.other, compute.Budget{}), compute.CodeForbidden, "not_an_operator")
	bad := set(w.ada, compute.Budget{URL: "http://example.com"})
	w.refused(bad, compute.CodeInvalid, "budget")
	w.refused(set(w.ada, compute.Budget{User: w.other.User}), compute.CodeNotFound, "member_not_found")

	w.must(command.RemoveMember{Actor: w.ada, Org: w.org, User: member.User})
	w.must(command.DeleteKey{Actor: w.ada, Key: key})
	if left := w.view().Budgets(w.org); len(left) != 2 || left[1].User != member.User {
		t.Errorf("%d budgets are left, want the organization's and that of the member who may return", len(left))
	}
	w.must(command.RemoveBudget{Actor: w.ada, Org: w.org, User: member.User})
}

// TestBudgetsOfMembersStay checks that a member that leaves and returns keeps its
// charges, and that the budget goes with the account.
func TestBudgetsOfMembersStay(t *testing.T) {
	w := newestWorld(t)
	member := w.addUser("dan")
	join := command.SetMember{Actor: w.root, Org: w.org, User: member.User, Role: compute.OrgMember}
	w.must(join)
	w.limit(compute.Budget{User: member.User, MaxCredits: 6000})
	minute := func() command.Submit {
		c := w.python("t4")
		c.Actor, c.Op = command.Actor{User: member.User, Org: w.org}, command.Op{}
		return c
	}
	w.complete(w.must(minute()).Execution, "n3", 30*time.Second)
	w.must(command.RemoveMember{Actor: w.ada, Org: w.org, User: member.User})
	w.must(join)
	w.refused(minute(), compute.CodeForbidden, "ceiling_reached")
	w.must(command.RemoveMember{Actor: w.ada, Org: w.org, User: member.User})
	w.must(command.DeleteUser{Actor: member})
	if left := w.view().Budgets(w.org); len(left) != 0 {
		t.Errorf("%d budgets are left of who has no account", len(left))
	}
}

// TestLimitedKeysLiftNoCeiling checks that an API key with a ceiling, of an owner who is
// an operator too, cannot change anything that would give somebody more credits to spend,
// or that starts replicas which do not count toward it.
func TestLimitedKeysLiftNoCeiling(t *testing.T) {
	w := newestWorld(t)
	free, own := compute.KeyID{UUID: w.uuid()}, compute.KeyID{UUID: w.uuid()}
	boss := command.Actor{User: compute.UserID{UUID: w.uuid()}, Org: w.org}
	w.must(command.CreateUser{
		Actor: w.root, User: compute.User{ID: boss.User, Email: "boss@example.com", Operator: true},
		Org: compute.Org{Slug: "ada"}, Join: true, Role: compute.OrgOwner,
	})
	w.must(command.CreateKey{Actor: boss, Key: compute.Key{ID: free, Lookup: "free", Personal: true}})
	w.must(command.CreateKey{Actor: boss, Key: compute.Key{ID: own, Lookup: "own"}, MaxCredits: 10})
	limited := boss
	limited.Key = own
	other := w.addUser("cleo")
	service, stopped, active := w.service(), w.deployment(), w.deployment()
	w.must(command.ChangeDeployment{Actor: w.ada, Deployment: stopped})
	scale := func(of compute.ExecutionID, n int) command.ScaleService {
		return command.ScaleService{Actor: limited, Service: of, Replicas: n}
	}
	for name, c := range map[string]command.Command{
		"a budget":             command.SetBudget{Actor: limited, Budget: compute.Budget{Org: w.org, Key: own, MaxCredits: 5}},
		"no budget":            command.RemoveBudget{Actor: limited, Org: w.org, Key: own},
		"a key":                command.CreateKey{Actor: limited, Key: compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: "l"}},
		"a personal key":       command.CreateKey{Actor: limited, Key: compute.Key{ID: compute.KeyID{UUID: w.uuid()}, Lookup: "l", Personal: true}},
		"the value of a key":   command.RegenerateKey{Actor: limited, Key: free, Lookup: "new"},
		"a key enabled":        command.ToggleKey{Actor: limited, Key: free},
		"a key deleted":        command.DeleteKey{Actor: limited, Key: free},
		"an invite":            command.PutInvite{Actor: limited, Invite: compute.Invite{ID: compute.InviteID{UUID: w.uuid()}, Org: w.org, Email: "x@example.com", Hash: hash("i")}},
		"a member":             command.SetMember{Actor: limited, Org: w.org, User: other.User},
		"a member removed":     command.RemoveMember{Actor: limited, Org: w.org, User: w.ada.User},
		"a user":               command.CreateUser{Actor: limited, User: compute.User{ID: compute.UserID{UUID: w.uuid()}, Email: "y@example.com"}, Org: compute.Org{Slug: "ada"}, Join: true},
		"another's password":   command.SetUser{Actor: limited, User: other.User, Password: "$argon2id$"},
		"the own password":     command.SetUser{Actor: limited, User: boss.User, Password: "$argon2id$"},
		"credits":              command.Grant{Actor: limited, Org: w.org, Amount: 5},
		"no charges":           command.SetBillingMode{Actor: limited, Meter: true},
		"a price":              command.RemovePrice{Actor: limited, Name: "t4"},
		"a quota":              command.SetQuota{Actor: limited, Quota: compute.Quota{Org: w.org}},
		"a member elsewhere":   command.SetMember{Actor: limited, Org: other.Org, User: boss.User},
		"the organization off": command.DeleteOrg{Actor: limited, Org: w.org},
		"replicas":             scale(service, 3),
		"a deployment":         command.ChangeDeployment{Actor: limited, Deployment: stopped, Start: true},
		"a larger model":       command.UpdateDeployment{Actor: limited, Deployment: active, Model: &compute.Inference{Engine: "echo", Model: "a/c"}},
		"a larger deployment": command.UpdateDeployment{Actor: limited, Deployment: active, Scaling: &compute.Deployment{
			Min: 3, Max: 3, TargetMilliRPS: 1000, TargetP95: time.Second, Window: time.Minute, Starts: 2,
		}},
	} {
		t.Run(name, func(*testing.T) { w.refused(c, compute.CodeForbidden, "key_limited") })
	}
	w.must(command.RegenerateKey{Actor: limited, Key: own, Lookup: "again"})
	if b, ok := w.view().Budget(w.org, own, compute.UserID{}); !ok || b.MaxCredits != 10 {
		t.Error("the new value of the key has no ceiling")
	}
	w.must(scale(service, 1))
	w.must(command.ChangeDeployment{Actor: limited, Deployment: active})
	w.limit(compute.Budget{Key: own, MaxCredits: compute.Credit})
	c := w.deploymentCommand()
	c.Actor, c.Op = limited, command.Op{}
	mine := w.must(c).Execution
	w.must(command.ChangeDeployment{Actor: limited, Deployment: mine})
	w.must(command.ChangeDeployment{Actor: limited, Deployment: mine, Start: true})
}

// TestLimitedMembersStartTheirOwn checks that a member with a ceiling starts no replicas that are
// charged to another member, and those of their own services.
func TestLimitedMembersStartTheirOwn(t *testing.T) {
	w := newestWorld(t)
	dan := w.addUser("dan")
	w.must(command.SetMember{Actor: w.root, Org: w.org, User: dan.User, Role: compute.OrgMember})
	dan.Org = w.org
	w.limit(compute.Budget{User: dan.User, MaxCredits: compute.Credit})
	service, stopped, active := w.service(), w.deployment(), w.deployment()
	w.must(command.ChangeDeployment{Actor: w.ada, Deployment: stopped})
	model := &compute.Inference{Engine: "echo", Model: "a/c"}
	more := command.ScaleService{Actor: dan, Service: service, Replicas: 3}
	for name, c := range map[string]command.Command{
		"replicas":       more,
		"a deployment":   command.ChangeDeployment{Actor: dan, Deployment: stopped, Start: true},
		"a larger model": command.UpdateDeployment{Actor: dan, Deployment: active, Model: model},
	} {
		t.Run(name, func(*testing.T) { w.refused(c, compute.CodeForbidden, "member_limited") })
	}
	w.must(command.ScaleService{Actor: dan, Service: service, Replicas: 1})
	w.must(command.ChangeDeployment{Actor: dan, Deployment: active})
	c := w.deploymentCommand()
	c.Actor, c.Op = dan, command.Op{}
	own := w.must(c).Execution
	w.must(command.ChangeDeployment{Actor: dan, Deployment: own})
	w.must(command.ChangeDeployment{Actor: dan, Deployment: own, Start: true})
	w.must(command.RemoveBudget{Actor: w.ada, Org: w.org, User: dan.User})
	w.must(more)
}

// TestPurchases checks that a checkout session adds its credits once.
func TestPurchases(t *testing.T) {
	w := newestWorld(t)
	before := w.account().Balance
	buy := command.RecordPurchase{Purchase: compute.Purchase{Org: w.org, ID: "cs_1", Amount: compute.Credit, Paid: 100, Currency: "eur"}}
	w.must(buy)
	if r := w.must(buy); !r.Repeat {
		t.Error("the second time is no repeat")
	}
	if got := w.account().Balance - before; got != compute.Credit || len(w.view().Purchases(w.org)) != 1 {
		t.Errorf("%s were added, %d purchases", got, len(w.view().Purchases(w.org)))
	}
	buy.Purchase.Org = compute.OrgID{UUID: w.uuid()}
	w.refused(buy, compute.CodeNotFound, "org_unknown")
}
