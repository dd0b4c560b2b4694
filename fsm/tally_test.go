package fsm_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fsm/command"
)

// wantSeries compares some series of the state's metrics.
func (w *world) wantSeries(want map[string]float64) {
	w.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := w.fsm.Register(reg); err != nil {
		w.Fatal(err)
	}
	got := series(w, reg)
	for name, value := range want {
		if found, ok := got[name]; !ok || found != value {
			w.Errorf("%s is %v (there: %t), want %v", name, found, ok, value)
		}
	}
}

// TestPreemptionsAreCounted checks that attempts that gave way, that ended
// before they had to, and that are unbilled are counted, and that the counts
// survive a snapshot.
func TestPreemptionsAreCounted(t *testing.T) {
	w, victim, head := newPreemptWorld(t)
	w.preempt(victim, head)
	w.must(w.yielded(victim, 10*time.Minute)) // Started 5 minutes ago by the state's clock.
	w.place("n1", victim)
	w.must(w.started(victim))
	w.now = w.now.Add(5 * time.Minute)
	w.do()
	w.preempt(victim, head)
	w.must(w.ended(victim, compute.StatusCompleted, time.Minute))
	w.place("n1", head)
	w.must(w.started(head))
	w.now = w.now.Add(time.Second)
	w.must(command.LoseAttempts{Term: w.term, Node: w.attempt(head).Node, Attempts: []command.AttemptRef{{
		Execution: head, Epoch: w.attempt(head).Epoch,
	}}})
	want := map[string]float64{
		"berth_preemptions_total h100 made_room":           1,
		"berth_preemptions_total h100 ended_first":         1,
		"berth_unbilled_attempts_total h100 preempted":     1,
		"berth_unbilled_attempts_total h100 node_lost":     1,
		"berth_unbilled_microcredits_total h100 preempted": 2 * 900 * 600,
		"berth_unbilled_microcredits_total h100 node_lost": 900,
	}
	w.wantSeries(want)
	restored, err := restore(w.snapshot())
	if err != nil {
		t.Fatal(err)
	}
	w.fsm = restored
	w.wantSeries(want)
}

// TestTalliesAreBounded checks that the number of series is bounded, however
// many types nodes report.
func TestTalliesAreBounded(t *testing.T) {
	w := newEmptyWorld(t)
	s := settings()
	s.SignupGrant = 1_000_000 * compute.Credit
	w.bootstrap(s)
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	for i := range 520 {
		name := fmt.Sprintf("type%d", i)
		w.must(command.SetPrices{Actor: w.root, Prices: map[string]compute.Price{name: 1}})
		w.addNode(name, name)
		id := w.submit(name)
		w.place(name, id)
		w.must(w.ended(id, compute.StatusSystemFailure, time.Second))
	}
	different, other := 0, uint64(0)
	for tally := range w.view().Unbilled() {
		different++
		if tally.GPUType == "other" {
			other = tally.Count
		}
	}
	if different != 513 || other != 8 {
		t.Errorf("%d tallies, %d of other types", different, other)
	}
}

// TestCalibrationIsExported checks the gauges of the estimates' coverage.
func TestCalibrationIsExported(t *testing.T) {
	w := newWorld(t)
	soon, late := w.submit("t4"), w.submit("t4")
	record := command.RecordEstimates{Term: 1, At: w.now}
	for _, id := range []compute.ExecutionID{soon, late} {
		record.Estimates = append(record.Estimates, compute.StartEstimate{Execution: id, P50: time.Second, P90: time.Minute})
	}
	w.must(record)
	w.now = w.now.Add(30 * time.Second)
	w.place("n3", soon)
	w.now = w.now.Add(time.Hour)
	w.place("n3", late)
	known := w.view().Calibration()
	scales := known.Sizes[0].Scales()
	w.wantSeries(map[string]float64{
		"berth_queue_estimates_total true 50":     0,
		"berth_queue_estimates_total false 50":    2,
		"berth_queue_estimates_total true 90":     1,
		"berth_queue_estimates_total false 90":    1,
		"berth_queue_estimate_scale_ratio 0-1 50": float64(scales.P50) / compute.ScaleOne,
		"berth_queue_estimate_scale_ratio 0-1 90": float64(scales.P90) / compute.ScaleOne,
	})
}
