package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// TestProviderCost holds that an execution has the operator's cost of its time, also
// when it was free.
func TestProviderCost(t *testing.T) {
	w := newestWorld(t)
	set := func(name string, price, cost compute.Price) {
		t.Helper()
		w.must(command.SetPrices{
			Actor: w.root, Prices: map[string]compute.Price{name: price}, Costs: map[string]compute.Price{name: cost},
		})
	}
	cost := func(id compute.ExecutionID) compute.Credits {
		return w.get(id).ProviderCost
	}
	unknown := w.submit("t4")
	w.complete(unknown, "n3", time.Second)
	if got := cost(unknown); got != 0 {
		t.Errorf("without a cost it cost %d", got)
	}
	set("t4", 100, 40)
	set("cpu", 15, 6)
	share := w.submit("t4.500m")
	w.complete(share, "n3", 10*time.Second)
	if got := cost(share); got != 200 {
		t.Errorf("10 s of half a t4 cost %d, want 200", got)
	}
	cpus := w.submit("cpu.2x")
	w.complete(cpus, "n1", time.Second)
	if got := cost(cpus); got != 12 {
		t.Errorf("a second of 2 vCPUs cost %d, want 12", got)
	}
	never := w.submit("t4")
	w.must(command.StopExecution{Actor: w.ada, Execution: never, Stop: compute.StopHard})
	if got := cost(never); got != 0 {
		t.Errorf("one that never ran cost %d", got)
	}
	w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{"t4": 90}})
	for _, p := range w.view().PriceList() {
		if p.Name == "t4" && (p.Cost != 40 || p.Price != 90) {
			t.Errorf("a new price changes the cost: %+v", p)
		}
	}
	set("t4", 90, 0)
	free := w.submit("t4")
	w.complete(free, "n3", time.Second)
	if got := cost(free); got != 0 {
		t.Errorf("a removed cost counts: %d", got)
	}
}
