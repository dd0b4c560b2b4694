package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// anyOf has an execution accept GPU types.
func anyOf(names ...string) func(*compute.Execution) {
	return func(e *compute.Execution) {
		for _, name := range names {
			e.GPUTypes = append(e.GPUTypes, compute.AcceptedType{Type: name})
		}
	}
}

// pricesOf returns the types that e accepts, and their prices.
func pricesOf(e *compute.Execution) string {
	var out []string
	for _, t := range e.GPUTypes {
		out = append(out, t.Type+"="+compute.Credits(t.Price).String())
	}
	return strings.Join(out, " ")
}

// TestAcceptedTypes checks which types are accepted, at which prices, and that the
// hold is for the dearest.
func TestAcceptedTypes(t *testing.T) {
	for _, test := range []struct {
		profile string
		types   []string
		change  func(*compute.Execution)
		want    string // Types and prices, or the text of the refusal.
		hold    int64
		detail  string
	}{
		{profile: "gpu.any", want: "a100=0.00055 h100=0.0009 l40s=0.0004 t4=0.0001", hold: 54_000},
		{profile: "GPU.ANY", types: []string{"T4", "gpu.a100", "t4"}, want: "t4=0.0001 a100=0.00055", hold: 33_000},
		{profile: "gpu.any.2x", types: []string{"t4", "h100"}, want: "t4=0.0002 h100=0.0018", hold: 108_000},
		{profile: "h100.2x", types: []string{"t4", "h100"}, want: "t4=0.0002 h100=0.0018", hold: 108_000},
		{profile: "any.500m", types: []string{"any"}, want: "a100=0.000275 h100=0.00045 l40s=0.0002 t4=0.00005", hold: 27_000},
		{profile: "any.4x", want: "a100=0.0022 l40s=0.0016 t4=0.0004", hold: 132_000, detail: "h100"},
		{profile: "any", types: []string{"v100", "t4"}, want: "no node has GPUs of type \"v100\""},
		{profile: "any", types: []string{"l4", "t4"}, want: "t4=0.0001", hold: 6000, detail: "l4: no node has"},
		{profile: "any", types: []string{"l4"}, want: "no GPU type fits"},
		{profile: "any.8x", want: "no GPU type fits"},
		{profile: "a100", types: []string{"t4"}, want: "not among gpu_types"},
		{profile: "cpu", types: []string{"t4"}, want: "not with cpu"},
		{profile: "any", types: []string{"t4.2x"}, want: "names of GPU types"},
		{profile: "any.mig_1g_5gb", want: "whole GPUs"},
		{
			profile: "any", types: []string{"t4", "h100"}, want: "t4=0.0001 h100=0.0009", hold: 20_000,
			change: func(e *compute.Execution) { e.MaxCredits = micro(20_000) }, detail: "max_credits buys",
		},
		{
			profile: "any", change: func(e *compute.Execution) { e.MinVRAMMiB = 100 << 10 },
			want: "no GPU type fits",
		},
		{profile: "any", change: func(e *compute.Execution) { e.MinCapability = 80 }, want: "not known"},
		{profile: "cpu", change: func(e *compute.Execution) { e.MinCapability = 80 }, want: "name a GPU type, or gpu.any"},
	} {
		w := newestWorld(t)
		w.addKnownPrice("l4", 110)
		c := w.python(test.profile)
		anyOf(test.types...)(&c.Execution)
		if test.change != nil {
			test.change(&c.Execution)
		}
		r := w.do(c)
		if r.Refusal != nil {
			if test.hold != 0 || !strings.Contains(r.Refusal.Message, test.want) || r.Refusal.Code != compute.CodeInvalid {
				t.Errorf("%s of %v: %v, want %q", test.profile, test.types, r.Refusal, test.want)
			}
			continue
		}
		e := w.get(r.Execution)
		if got := pricesOf(e); got != test.want || e.Held != micro(test.hold) || !strings.Contains(e.Detail, test.detail) {
			t.Errorf("%s of %v: %s, %s held (%q), want %s, %s held", test.profile, test.types,
				got, e.Held, e.Detail, test.want, micro(test.hold))
		}
		if !strings.HasPrefix(e.Profile, "gpu.any") || e.Request.GPUType != "" || !e.Request.Ranked {
			t.Errorf("%s waits as %s: %+v", test.profile, e.Profile, e.Request)
		}
	}
}

// addKnownPrice names a type in the price list that no node has.
func (w *world) addKnownPrice(name string, price compute.Price) {
	w.Helper()
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{name: price}})
}

// TestLeastCapability checks that types below the asked compute capability are left
// out, of a GPU selection too.
func TestLeastCapability(t *testing.T) {
	w := newestWorld(t)
	for name, capability := range map[string]int{"n1": 89, "n2": 80, "n3": 75} {
		n := w.node(name)
		types := make([]string, 0, len(n.GPUs))
		for _, g := range n.GPUs {
			types = append(types, g.Type)
		}
		inv := inventory(n.ID, name, 2, types...)
		for i := range inv.GPUs {
			inv.GPUs[i].Capability = capability
		}
		w.must(command.SetInventory{Term: w.term, Inventory: inv})
	}
	modern := func(e *compute.Execution) { e.MinCapability = 80 }
	e := w.get(w.submit("any", anyOf("t4", "a100", "l40s"), modern))
	if got := pricesOf(e); got != "a100=0.00055 l40s=0.0004" || !strings.Contains(e.Detail, "t4 has compute capability 7.5, not 8.0") {
		t.Errorf("it accepts %s (%q)", got, e.Detail)
	}
	c := w.python("t4")
	modern(&c.Execution)
	c.Op = command.Op{}
	w.refused(c, compute.CodeInvalid, "never_fits")
	w.submit("a100", modern)
	parent := w.selection(modern)
	w.must(w.take(parent, "gpu.a100", "gpu.t4"))
	if children := w.children(parent); len(children) != 1 || children[0].MinCapability != 80 ||
		!strings.Contains(w.get(parent).Detail, "gpu.t4: too low a compute capability") {
		t.Errorf("%d children, detail %q", len(children), w.get(parent).Detail)
	}
}

// TestPlacedTypeIsCharged follows an execution over two types: it is charged at the
// price of the type that it gets, and its hold is for the dearest again while it
// waits.
func TestPlacedTypeIsCharged(t *testing.T) {
	w := newestWorld(t)
	id := w.submit("any", anyOf("h100", "t4"), retries(1))
	want := func(profile string, price compute.Price, held int64) {
		t.Helper()
		if e := w.get(id); e.Profile != profile || e.Price != price || e.Held != micro(held) {
			t.Fatalf("it is %s at %d with %s held, want %s at %d with %s", e.Profile, e.Price, e.Held, profile, price, micro(held))
		}
		if err := w.view().Check(); err != nil {
			t.Fatal(err)
		}
	}
	want("gpu.any", 900, 54_000)
	w.place("n3", id)
	want("gpu.t4", 100, 54_000)
	if r := w.get(id).Request; r.GPUType != "t4" || len(r.AnyOf) > 0 {
		t.Errorf("once placed it asks for %+v", r)
	}
	w.must(w.started(id))
	w.must(w.lost(id))
	want("gpu.any", 900, 54_000)
	w.place("n1", id)
	want("gpu.h100", 900, 54_000)
	w.must(w.started(id))
	w.must(w.ended(id, compute.StatusCompleted, 10*time.Second))
	if e := w.get(id); e.Billed != micro(9000) || e.Profile != "gpu.h100" {
		t.Errorf("billed %s as %s", e.Billed, e.Profile)
	}
	cheap := w.submit("any", anyOf("h100", "t4"))
	w.complete(cheap, "n3", 10*time.Second)
	if e := w.get(cheap); e.Billed != micro(1000) {
		t.Errorf("billed %s for a t4", e.Billed)
	}
	w.wantMoney(100*compute.Credit-micro(10_000), 0)
}

// TestOtherTypesAreRefused checks that no plan gives an execution a type that it does
// not accept.
func TestOtherTypesAreRefused(t *testing.T) {
	w := newestWorld(t)
	id := w.submit("any", anyOf("h100", "t4"))
	a := compute.Assignment{Execution: id, Node: w.node("n2").ID, GPUs: []compute.GPUShare{{GPU: "SIM-n2-0", Milli: 1000}}}
	if r := w.must(command.CommitPlan{Term: w.term, Plan: compute.Plan{Assignments: []compute.Assignment{a}}}); r.Count != 0 {
		t.Error("placed on an a100")
	}
}

// TestOwedTimeKeepsItsCost preempts an execution on one type for work of its own
// organization and finishes it on another: the time on the first is charged at the
// price of the first.
func TestOwedTimeKeepsItsCost(t *testing.T) {
	w := newestWorld(t)
	s := settings()
	s.PreemptMinRun, s.PreemptNotice = time.Minute, time.Second
	w.must(command.SetSettings{Term: 1, Settings: s})
	id := w.submit("any.2x", anyOf("h100", "t4"), preemptible, func(e *compute.Execution) { e.Timeout = 30 * time.Minute })
	w.place("n1", id)
	w.must(w.started(id))
	w.now = w.now.Add(5 * time.Minute)
	w.do()
	if !w.preempt(id, w.submit("h100.2x", urgent)) {
		t.Fatal("not preempted")
	}
	w.must(w.yielded(id, 100*time.Second))
	w.wantStatus(id, compute.StatusQueued, compute.ReasonPreempted)
	if e := w.get(id); e.Price != 1800 || e.Owed != 100*time.Second {
		t.Errorf("it owes %s at %d", e.Owed, e.Price)
	}
	w.complete(id, "n3", 10*time.Second)
	if e := w.get(id); e.Billed != micro(180_000+2000) || e.Profile != "gpu.t4.2x" {
		t.Errorf("billed %s as %s, want 100 s of h100.2x and 10 s of t4.2x", e.Billed, e.Profile)
	}
}

// TestServiceOfAnyType checks that each replica takes a type of its own.
func TestServiceOfAnyType(t *testing.T) {
	w := newestWorld(t)
	id := w.service(anyOf("h100", "t4"), func(e *compute.Execution) { e.Profile = "gpu.any" })
	w.reconcile(id)
	w.place("n3", w.replica(id, 1))
	w.place("n1", w.replica(id, 2))
	if one, two := w.get(w.replica(id, 1)), w.get(w.replica(id, 2)); one.Profile != "gpu.t4" || one.Price != 100 ||
		two.Profile != "gpu.h100" || two.Price != 900 || w.get(id).Profile != "gpu.any" {
		t.Errorf("the replicas are %s at %d and %s at %d", one.Profile, one.Price, two.Profile, two.Price)
	}
}

// TestAnyTypeWaitsForItsFormat checks that the fields are proposed only once every
// replica knows them, and how an older state treats them.
func TestAnyTypeWaitsForItsFormat(t *testing.T) {
	w := newWorld(t)
	for _, change := range []func(*compute.Execution){
		anyOf("t4"),
		func(e *compute.Execution) { e.MinCapability = 70 },
		func(e *compute.Execution) { e.Profile = "gpu.any.2x" },
	} {
		c := w.python("t4")
		change(&c.Execution)
		if err := w.view().Allows(c); compute.CodeOf(err) != compute.CodeConflict {
			t.Errorf("%+v: %v", c.Execution, err)
		}
	}
	w.refused(w.python("gpu.any"), compute.CodeInvalid, "unknown_profile")
	if e := w.get(w.submit("t4", anyOf("t4", "h100"))); len(e.GPUTypes) != 0 || e.Profile != "gpu.t4" {
		t.Errorf("an older state stores %s of %v", e.Profile, e.GPUTypes)
	}
}
