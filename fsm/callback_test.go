package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// TestDeliveries records tries of the two callbacks of an execution, and has them sent
// again.
func TestDeliveries(t *testing.T) {
	w := newWorld(t)
	id := w.submit("cpu", func(e *compute.Execution) {
		e.CallbackURLs = []string{"https://example.com/a", "https://example.com/b"}
	})
	w.place("n1", id)
	w.must(w.started(id))
	w.must(w.ended(id, compute.StatusCompleted, time.Second))
	due := func(at compute.Instant) (n int) {
		for range w.view().DueCallbacks(at) {
			n++
		}
		return n
	}
	record := func(number int, d compute.Delivery) int {
		d.Execution, d.Number = id, number
		return w.must(command.RecordDeliveries{Term: w.view().Term(), Deliveries: []compute.Delivery{d}}).Count
	}
	of := func(number int) *compute.Callback { return w.view().CallbacksOf(id)[number] }
	now := w.view().Now()
	if due(now) != 2 || len(w.view().CallbacksOf(compute.ExecutionID{})) != 0 {
		t.Fatalf("%d are due", due(now))
	}
	if record(0, compute.Delivery{At: 5, Delivered: true, Code: 200}) != 1 || due(now) != 1 || of(0).Pending() || of(0).Tries != 1 {
		t.Errorf("delivered: %+v", of(0))
	}
	if record(0, compute.Delivery{At: 6, Error: "late"}) != 0 || of(0).Failed {
		t.Errorf("a result after the delivery: %+v", of(0))
	}
	next := now.Add(time.Minute)
	record(1, compute.Delivery{At: 7, Code: 503, Error: string(make([]byte, 1000)), NextAt: next})
	if c := of(1); due(now) != 0 || due(next) != 1 || c.Code != 503 || len(c.Error) > 200 || c.NextAt != next {
		t.Errorf("failed once: %+v", c)
	}
	record(1, compute.Delivery{At: 8, Error: "refused"})
	if c := of(1); due(next) != 0 || !c.Failed || c.Tries != 2 {
		t.Errorf("given up: %+v", c)
	}
	if record(2, compute.Delivery{Delivered: true}) != 0 {
		t.Error("a callback that does not exist was delivered")
	}

	again := command.RedeliverCallbacks{Actor: w.ada, Execution: id, Number: new(1)}
	if w.must(again).Count != 1 || due(w.view().Now()) != 1 || of(1).Since.IsZero() || of(1).Failed {
		t.Errorf("one again: %+v", of(1))
	}
	again.Number = nil
	if w.must(again).Count != 2 || due(w.view().Now()) != 2 {
		t.Error("all again: not all are due")
	}
	again.Number = new(7)
	w.refused(again, compute.CodeNotFound, "callback_not_found")
	w.refused(command.RedeliverCallbacks{Actor: w.other, Execution: id}, compute.CodeNotFound, "execution_not_found")
	w.refused(command.RedeliverCallbacks{Actor: w.ada, Execution: w.submit("cpu")}, compute.CodeNotFound, "callback_not_found")
}
