package fsm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// quota sets a quota with the root token.
func (w *world) quota(q compute.Quota) {
	w.Helper()
	w.must(command.SetQuota{Op: w.op(compute.OrgID{}, "quota"), Actor: w.root, Quota: q})
}

func TestQuotasAreCheckedWhenAPlanIsApplied(t *testing.T) {
	key := compute.KeyID{UUID: compute.UUID{9}}
	tests := []struct {
		name  string
		quota compute.Quota
		first func(*compute.Execution)
		next  func(*compute.Execution)
		want  compute.Reason
	}{
		{"organization", compute.Quota{Concurrent: 1}, nil, nil, compute.ReasonOrgConcurrency},
		{"GPUs of the organization", compute.Quota{MilliGPU: 2000}, nil, nil, compute.ReasonQuotaGPUs},
		{"room for both", compute.Quota{Concurrent: 2, MilliGPU: 4000}, nil, nil, compute.ReasonNone},
		{"tag", compute.Quota{Tag: "red", Concurrent: 1}, tagged("red"), tagged("blue", "red"), compute.ReasonTagConcurrency},
		{"GPUs of a tag", compute.Quota{Tag: "red", MilliGPU: 3999}, tagged("red"), tagged("red"), compute.ReasonQuotaGPUs},
		{"another tag", compute.Quota{Tag: "red", Concurrent: 1}, tagged("red"), tagged("blue"), compute.ReasonNone},
		{"key", compute.Quota{Key: key, Concurrent: 1}, nil, nil, compute.ReasonKeyConcurrency},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.quota.Key == key {
				w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key, Lookup: "0123456789"}})
				w.ada.Key = key
			}
			tt.quota.Org = w.org
			w.quota(tt.quota)
			first, next := w.submit("a100.2x", or(tt.first)), w.submit("a100.2x", or(tt.next))
			w.place("n2", first)
			w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{
				Assignments: []compute.Assignment{w.assign(next, "n2")},
			}})
			if got := w.get(next); got.Reason != tt.want || (got.Epoch == 1) != (tt.want == compute.ReasonNone) {
				t.Fatalf("the next one is %s for %q, want %q", got.Status, got.Reason, tt.want)
			}
			if tt.want == compute.ReasonNone {
				return
			}
			w.must(w.ended(first, compute.StatusCompleted, time.Second))
			w.place("n2", next)
		})
	}
}

// profile sets the quota of a hardware profile for the organization.
func (w *world) profile(name string, q compute.Quota) {
	w.Helper()
	q.Org, q.Profile = w.org, name
	w.quota(q)
}

// TestDeniedHardware checks that no work enters on hardware that its organization may not use,
// that work which accepts other hardware too gets that, and that other organizations are as before.
func TestDeniedHardware(t *testing.T) {
	w := newestWorld(t)
	service, stopped := w.service(), w.deployment()
	w.must(command.ChangeDeployment{Actor: w.ada, Deployment: stopped})
	w.profile("gpu.a100", compute.Quota{Denied: true})
	w.profile("gpu.t4.2x", compute.Quota{Denied: true})
	denied := func(c command.Command) {
		t.Helper()
		w.refused(c, compute.CodeForbidden, "profile_denied")
	}
	python := func(profile string, change ...func(*compute.Execution)) command.Submit {
		c := w.python(profile)
		c.Op = command.Op{}
		for _, f := range change {
			f(&c.Execution)
		}
		return c
	}
	selects := func(types ...string) func(*compute.Execution) {
		return func(e *compute.Execution) {
			e.Kind, e.Selection = compute.KindSelection, &compute.Selection{GPUTypes: types}
		}
	}
	for _, profile := range []string{"a100", "gpu.a100.2x", "A100.500m", "t4.2x"} {
		denied(python(profile))
	}
	denied(python("any", anyOf("a100")))
	denied(python("any.2x", anyOf("a100", "t4")))
	denied(python("", selects("a100")))
	mixed := w.must(python("any", anyOf("a100", "t4"))).Execution
	if e := w.get(mixed); pricesOf(e) != "t4=0.0001" || !strings.Contains(e.Detail, "a100: the organization may not use it") {
		t.Errorf("of two types it accepts %q, %q", pricesOf(e), e.Detail)
	}
	parent := w.must(python("", selects("a100", "t4"))).Execution
	if r := w.must(w.take(parent, "gpu.a100", "gpu.t4")); r.Count != 1 {
		t.Errorf("%d types of two are tried, one is allowed", r.Count)
	}
	w.must(python("t4"))
	c := python("a100")
	c.Actor = w.other
	w.must(c)
	w.profile("cpu", compute.Quota{Denied: true})
	deployment := w.deploymentCommand()
	deployment.Op = command.Op{} // Refusals are not remembered.
	denied(deployment)
	denied(command.ScaleService{Actor: w.ada, Service: service, Replicas: 3})
	denied(command.ChangeDeployment{Actor: w.ada, Deployment: stopped, Start: true})
	w.must(command.ScaleService{Actor: w.ada, Service: service, Replicas: 1})
	w.profile("cpu", compute.Quota{})
	w.must(command.ChangeDeployment{Actor: w.ada, Deployment: stopped, Start: true})
	for _, name := range w.view().GPUTypes() {
		w.profile("gpu."+name, compute.Quota{Denied: true})
	}
	denied(python("", selects()))
	denied(python("any"))
}

// TestHardwareQuotas checks that work on a hardware profile at its limit waits, that a quota of a
// type counts all its sizes, and that work of several types counts toward the one that it gets.
func TestHardwareQuotas(t *testing.T) {
	w := newestWorld(t)
	tryPlace := func(id compute.ExecutionID, node string) compute.Reason {
		w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{w.assign(id, node)}}})
		return w.get(id).Reason
	}
	several := w.submit("any", anyOf("a100", "t4"))
	w.place("n2", several)
	w.profile("gpu.a100", compute.Quota{Concurrent: 2})
	w.profile("gpu.a100.2x", compute.Quota{MilliGPU: 2000})
	w.place("n2", w.submit("a100.2x"))
	for name, want := range map[string]compute.Load{
		"gpu.a100": {Attempts: 2, MilliGPU: 3000}, "gpu.a100.2x": {Attempts: 1, MilliGPU: 2000}, "gpu.t4": {},
	} {
		if got := w.view().Load(compute.Quota{Org: w.org, Profile: name}); got != want {
			t.Errorf("%s holds %+v, want %+v", name, got, want)
		}
	}
	either := w.submit("any", anyOf("a100", "t4"))
	if why := tryPlace(either, "n2"); why != compute.ReasonProfileConcurrency {
		t.Errorf("a third one on the type waits for %q", why)
	}
	w.place("n3", either)
	w.must(w.ended(several, compute.StatusCompleted, time.Second))
	if why := tryPlace(w.submit("a100.2x"), "n2"); why != compute.ReasonQuotaGPUs {
		t.Errorf("more GPUs of the profile wait for %q", why)
	}
	w.profile("gpu.a100", compute.Quota{Denied: true})
	queued := w.submit("t4")
	w.profile("gpu.t4", compute.Quota{Denied: true})
	if why := tryPlace(queued, "n3"); why != compute.ReasonProfileDenied {
		t.Errorf("queued work on hardware that is denied meanwhile waits for %q", why)
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
}

func tagged(tags ...string) func(*compute.Execution) {
	return func(e *compute.Execution) { e.Tags = tags }
}

func or(change func(*compute.Execution)) func(*compute.Execution) {
	if change == nil {
		return func(*compute.Execution) {}
	}
	return change
}

func TestSetQuota(t *testing.T) {
	w := newWorld(t)
	w.quota(compute.Quota{Org: w.org, Concurrent: 3, Weight: 250})
	w.quota(compute.Quota{Org: w.org, Tag: "red", MilliGPU: 500})
	w.quota(compute.Quota{Org: w.org, Tag: "blue", Concurrent: 1})
	w.quota(compute.Quota{Org: w.org, Tag: "blue"}) // Without limits it is removed.
	got := w.view().Quotas(w.org)
	for i := range got {
		got[i].ChangedAt = 0
	}
	want := []compute.Quota{
		{Org: w.org, Concurrent: 3, Weight: 250}, {Org: w.org, Tag: "red", MilliGPU: 500},
	}
	if !slices.Equal(got, want) {
		t.Errorf("quotas are %+v, want %+v", got, want)
	}
	other := w.view().Quotas(w.other.Org)
	if len(other) != 1 || other[0].Concurrent != 100 || other[0].Weight != compute.DefaultWeight {
		t.Errorf("without a quota of its own an organization has %+v", other)
	}
	for _, tt := range []struct {
		quota  compute.Quota
		code   compute.Code
		detail string
	}{
		{compute.Quota{Org: compute.OrgID{UUID: w.uuid()}, Concurrent: 1}, compute.CodeNotFound, "org_unknown"},
		{compute.Quota{Org: w.org, Key: compute.KeyID{UUID: w.uuid()}, Concurrent: 1}, compute.CodeNotFound, "key_not_found"},
		{compute.Quota{Org: w.org, Concurrent: -1}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, MilliGPU: -1}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Weight: compute.MaxWeight + 1}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Tag: "red", Weight: 1}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Denied: true}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Profile: "gpu.t4", Weight: 1}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Profile: "gpu.t4", Tag: "red"}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Profile: "gpu.t4", Denied: true, Concurrent: 1}, compute.CodeInvalid, "quota"},
		{compute.Quota{Org: w.org, Profile: "t4", Denied: true}, compute.CodeInvalid, "unknown_profile"},
		{compute.Quota{Org: w.org, Profile: "gpu.any", Denied: true}, compute.CodeInvalid, "unknown_profile"},
		{compute.Quota{Org: w.org, Profile: "gpu.tea", Denied: true}, compute.CodeInvalid, "unknown_profile"},
	} {
		w.refused(command.SetQuota{Actor: w.root, Quota: tt.quota}, tt.code, tt.detail)
	}
	w.refused(command.SetQuota{Actor: w.ada, Quota: want[0]}, compute.CodeForbidden, "not_an_operator")
}

func TestQuotaOfAKeyGoesWithIt(t *testing.T) {
	w := newWorld(t)
	key := compute.KeyID{UUID: w.uuid()}
	w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key, Lookup: "0123456789"}})
	w.quota(compute.Quota{Org: w.org, Key: key, Concurrent: 1})
	w.must(command.DeleteKey{Actor: w.ada, Key: key})
	if got := w.view().Quotas(w.org); len(got) != 1 {
		t.Errorf("a quota of a key that is gone: %+v", got)
	}
}

// TestQuotaOutlivesItsHardware checks that the quota of a hardware profile can be changed and removed once no
// node has such hardware and nothing prices it.
func TestQuotaOutlivesItsHardware(t *testing.T) {
	w := newestWorld(t)
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"x1": 7}})
	w.profile("gpu.x1", compute.Quota{Denied: true})
	w.must(command.RemovePrice{Actor: w.root, Name: "x1"})
	w.profile("gpu.x1", compute.Quota{Concurrent: 1})
	w.profile("gpu.x1", compute.Quota{})
	if got := w.view().Quotas(w.org); len(got) != 1 {
		t.Errorf("the quotas are %+v", got)
	}
	again := command.SetQuota{Actor: w.root, Quota: compute.Quota{Org: w.org, Profile: "gpu.x1", Denied: true}}
	w.refused(again, compute.CodeInvalid, "unknown_profile")
}

// TestQuotaOutlivesItsKey checks that the work of a deleted key keeps to its quota while it waits
// and runs, that an operator may change it, and that it goes with the last of the work.
func TestQuotaOutlivesItsKey(t *testing.T) {
	w := newestWorld(t)
	by := w.ada
	by.Key = compute.KeyID{UUID: w.uuid()}
	w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: by.Key, Lookup: "0123456789"}})
	w.quota(compute.Quota{Org: w.org, Key: by.Key, Concurrent: 1})
	start := func() compute.ExecutionID {
		c := w.python("t4")
		c.Actor, c.Execution.Timeout = by, time.Hour
		return w.must(c).Execution
	}
	running, waiting, third := start(), start(), start()
	w.place("n3", running)
	w.must(command.DeleteKey{Actor: w.ada, Key: by.Key})
	assign := func(id compute.ExecutionID) command.CommitPlan {
		return command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{w.assign(id, "n3")}}}
	}
	w.pass(5 * time.Minute)
	if r := w.must(assign(waiting)); r.Count != 0 || w.get(waiting).Reason != compute.ReasonKeyConcurrency {
		t.Errorf("a second one is placed, or waits for %q", w.get(waiting).Reason)
	}
	w.quota(compute.Quota{Org: w.org, Key: by.Key, Concurrent: 2})
	w.place("n3", waiting)
	if r := w.must(assign(third)); r.Count != 0 {
		t.Error("a third one is placed beside two")
	}
	if err := w.view().Check(); err != nil {
		t.Error(err)
	}
	for _, id := range []compute.ExecutionID{running, waiting} {
		w.must(w.ended(id, compute.StatusCompleted, time.Second))
	}
	w.place("n3", third)
	w.must(w.ended(third, compute.StatusCompleted, time.Second))
	w.pass(5 * time.Minute)
	if got := w.view().Quotas(w.org); len(got) != 1 {
		t.Errorf("a quota of a key without work: %+v", got)
	}
}

// TestShareCountsPlacedWork follows an organization's fair-share usage through
// an execution: nothing while it waits, its price while it is placed, and half
// of that a half-life later.
func TestShareCountsPlacedWork(t *testing.T) {
	w := newWorld(t)
	share := func() compute.Share { return w.view().Share(w.org) }
	id := w.submit("a100")
	w.pass(time.Hour)
	if got := share(); got != (compute.Share{Weight: 100}) {
		t.Errorf("waiting counts: %+v", got)
	}
	w.place("n2", id)
	w.now = w.now.Add(100 * time.Second)
	w.do()
	if got := share(); got.Rate != 550 || got.Used < 54_400_000 || got.Used > 55_000_000 {
		t.Errorf("after 100 s at 550 a second: %+v, want about 55,000,000", got)
	}
	w.must(w.ended(id, compute.StatusCompleted, time.Second))
	held := share()
	if held.Rate != 0 || held.Used == 0 {
		t.Errorf("after the end: %+v", held)
	}
	w.pass(24 * time.Hour)
	if got := share().Used; got < held.Used*49/100 || got > held.Used*51/100 {
		t.Errorf("a half-life later %d of %d count", got, held.Used)
	}
	w.pass(40 * 24 * time.Hour)
	if got := share().Used; got != 0 {
		t.Errorf("40 days later %d still count", got)
	}
}

// TestShareOfLongWork compares the decayed usage of a long execution with the
// limit of its sum: rate × half-life / ln 2.
func TestShareOfLongWork(t *testing.T) {
	w := newWorld(t)
	s := settings()
	s.ShareHalfLife, s.TimeoutMax = time.Hour, 1000*time.Hour
	w.must(command.SetSettings{Term: 1, Settings: s})
	id := w.submit("t4", func(e *compute.Execution) { e.Timeout = 900 * time.Hour })
	w.place("n3", id)
	w.pass(30 * time.Hour)
	const limit = 100 * 3_600_000 * 1000 / 693 // 1 / ln 2 = 1000/693.
	if got := w.view().Share(w.org).Used; got < limit*98/100 || got > limit*102/100 {
		t.Errorf("after 30 half-lives at 100 a second: %d, want about %d", got, limit)
	}
}
