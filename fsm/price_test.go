package fsm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// TestTypesWithoutAPriceHaveADefault checks that a GPU type that the price list
// does not name costs by its memory, as a whole, as a share and as a slice, once
// every replica computes the same.
func TestTypesWithoutAPriceHaveADefault(t *testing.T) {
	w := newWorld(t)
	w.addNode("n4", "v100", "v100")
	if _, _, _, err := w.view().Resolve("gpu.v100"); err == nil || !strings.Contains(err.Error(), "no price") {
		t.Errorf("below the format: %v", err)
	}
	w.upgrade()
	whole := compute.DefaultPrice(16<<10 - 1)
	for profile, want := range map[string]compute.Price{
		"gpu.v100": whole, "gpu.v100.2x": 2 * whole, "gpu.v100.500m": whole / 2, "gpu.t4": 100,
	} {
		if _, _, p, err := w.view().Resolve(profile); err != nil || p != want {
			t.Errorf("%s costs %d, %v, want %d", profile, p, err, want)
		}
	}
	id := w.submit("v100")
	w.complete(id, "n4", time.Second)
	if b := w.get(id).Billed; b != compute.Credits(whole) {
		t.Errorf("a second is billed %d, want %d", b, whole)
	}

	// A smaller card of the type makes it cheaper: no more is guaranteed.
	inv := inventory(w.node("n4").ID, "n4", uint64(w.now)+1, "v100", "v100")
	inv.GPUs[1].VRAMMiB = 12 << 10
	w.must(command.SetInventory{Term: w.term, Inventory: inv})
	if _, _, p, _ := w.view().Resolve("gpu.v100"); p != compute.DefaultPrice(12<<10) {
		t.Errorf("with a smaller card: %d", p)
	}
}

// TestPricesOfTheOperator checks the price list: the source of a price, the prices
// after a removal, and that a submitted execution keeps its price.
func TestPricesOfTheOperator(t *testing.T) {
	w := newestWorld(t)
	w.addNode("n4", "v100")
	line := func(name string) fsm.ListedPrice {
		list := w.view().PriceList()
		i := slices.IndexFunc(list, func(p fsm.ListedPrice) bool { return p.Name == name })
		if i < 0 {
			return fsm.ListedPrice{}
		}
		return list[i]
	}
	want := func(name string, price compute.Price, source compute.PriceSource) {
		t.Helper()
		if got := line(name); got.Price != price || got.Source != source {
			t.Errorf("%s: %d by %s, want %d by %s", name, got.Price, got.Source, price, source)
		}
	}
	byDefault := compute.DefaultPrice(16<<10 - 1)
	want("v100", byDefault, compute.PriceDefault)
	want("t4", 100, compute.PriceBuiltIn)

	id := w.submit("v100")
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"v100": 7, "t4": 8, "rtx_4090": 9}})
	want("v100", 7, compute.PriceOperator)
	want("t4", 8, compute.PriceOperator)
	want("rtx_4090", 9, compute.PriceOperator)
	w.complete(id, "n4", time.Second)
	if b := w.get(id).Billed; b != compute.Credits(byDefault) {
		t.Errorf("billed %d, submitted at %d", b, byDefault)
	}

	remove := func(name string, builtIn compute.Price) command.RemovePrice {
		return command.RemovePrice{Actor: w.root, Name: name, BuiltIn: builtIn}
	}
	w.must(remove("v100", 0))
	w.must(remove("t4", 60))
	w.must(remove("rtx_4090", 0))
	want("v100", byDefault, compute.PriceDefault)
	want("t4", 60, compute.PriceBuiltIn)
	want("rtx_4090", 0, compute.PriceBuiltIn)
	w.refused(remove("v100", 0), compute.CodeNotFound, "price_not_found")
	w.refused(remove("t4", 60), compute.CodeNotFound, "price_not_found")
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"cpu": 1}})
	w.refused(remove("cpu", 0), compute.CodeInvalid, "price")
	denied := remove("cpu", 15)
	denied.Actor = w.ada
	w.refused(denied, compute.CodeForbidden, "not_an_operator")
	w.must(remove("cpu", 15))
}

func TestBootstrapMarksTheOperatorsPrices(t *testing.T) {
	w := newEmptyWorld(t)
	w.must(command.Bootstrap{ClusterID: w.uuid(), Settings: settings(), Prices: prices(), Own: []string{"t4"}})
	if p, source, _ := w.view().PriceOf("t4"); p != 100 || source != compute.PriceOperator {
		t.Errorf("t4: %d by %s", p, source)
	}
	if _, source, _ := w.view().PriceOf("h100"); source != compute.PriceBuiltIn {
		t.Errorf("h100: by %s", source)
	}
}

// TestBillingMode checks that credits are counted and nothing is refused while
// they are metered, that a balance may then be negative, and that a leader's
// settings do not change the mode.
func TestBillingMode(t *testing.T) {
	w := newestWorld(t)
	dear := func(e *compute.Execution) { e.Timeout = 20 * time.Hour }
	w.must(command.SetBillingMode{Actor: w.root, Meter: true})
	other := settings()
	other.Keys = 7
	w.must(command.SetSettings{Term: w.term, Settings: other})
	if s := w.view().Settings(); !s.Meter || s.Keys != 7 {
		t.Errorf("settings are %+v", s)
	}
	var last compute.ExecutionID
	for range 20 {
		last = w.submit("h100.2x", dear)
		w.complete(last, "n1", time.Hour)
	}
	if a := w.account(); a.Balance >= 0 || a.Held != 0 {
		t.Errorf("balance %s, held %s", a.Balance, a.Held)
	}
	if err := w.view().VerifyLedger(w.org); err != nil {
		t.Error(err)
	}
	ceiling := w.submit("t4", func(e *compute.Execution) { e.Timeout, e.MaxCredits = time.Hour, 1000 })
	if e := w.get(ceiling); e.Timeout != 10*time.Second {
		t.Errorf("max_credits allow %v", e.Timeout)
	}
	running := w.submit("t4", dear)
	w.place("n3", running)
	w.pass(59 * time.Minute)
	w.must(command.Tick{Term: w.term})
	if e := w.get(running); e.Stop != compute.StopNone {
		t.Errorf("stopped while credits are metered: %s", e.Detail)
	}

	refused := command.SetBillingMode{Actor: w.ada}
	w.refused(refused, compute.CodeForbidden, "not_an_operator")
	w.must(command.SetBillingMode{Actor: w.root})
	poor := w.python("t4")
	poor.Op = command.Op{}
	w.refused(poor, compute.CodeForbidden, "credits_exhausted")
	w.pass(10 * time.Minute)
	w.must(command.Tick{Term: w.term})
	if e := w.get(running); e.Reason != compute.ReasonCredits {
		t.Errorf("not stopped once credits are enforced: %s", e.Reason)
	}
}

// TestOldFormatsKeepTheirBillingMode checks that settings decide below the
// format that has the command.
func TestOldFormatsKeepTheirBillingMode(t *testing.T) {
	w := newWorld(t)
	metered := settings()
	metered.Meter = true
	w.must(command.SetSettings{Term: w.term, Settings: metered})
	if !w.view().Settings().Meter {
		t.Error("the settings of an old format do not decide")
	}
	if err := w.view().Allows(command.SetBillingMode{}); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("allowed: %v", err)
	}
}
