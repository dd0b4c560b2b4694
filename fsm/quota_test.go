package fsm_test

import (
	"slices"
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
