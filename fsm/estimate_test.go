package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// TestEstimatesAreCheckedAtStart follows an estimate: it is stored while
// its execution waits, counted when the execution starts, and dropped when the
// execution ends before.
func TestEstimatesAreCheckedAtStart(t *testing.T) {
	w := newWorld(t)
	soon, late, stopped, other := w.submit("t4"), w.submit("t4"), w.submit("t4"), w.executionID()
	record := command.RecordEstimates{Term: 1, At: w.now}
	for _, id := range []compute.ExecutionID{soon, late, stopped, other, late} {
		record.Estimates = append(record.Estimates, compute.StartEstimate{Execution: id, P50: time.Second, P90: time.Minute})
	}
	if r := w.must(record); r.Count != 3 {
		t.Fatalf("recorded %d, want 3", r.Count)
	}
	w.must(command.StopExecution{Actor: w.ada, Execution: stopped, Stop: compute.StopHard})
	w.place("n3", soon)
	w.now = w.now.Add(time.Hour)
	w.place("n3", late)
	got := w.view().Calibration()
	if got.P50 != (compute.Coverage{Covered: 1, Total: 2}) || got.P90 != (compute.Coverage{Covered: 1, Total: 2}) {
		t.Errorf("counted %+v", got)
	}
	for _, id := range []compute.ExecutionID{soon, late, stopped} {
		if w.get(id).Estimate != nil {
			t.Errorf("%s keeps its estimate", id)
		}
	}
}

// TestOverdueEstimatesCountOnce checks that an overdue estimate corrects the
// scale before its execution starts, and not again at the start.
func TestOverdueEstimatesCountOnce(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	w.must(command.RecordEstimates{Term: 1, At: w.now, Estimates: []compute.StartEstimate{
		{Execution: id, P50: time.Second, P90: time.Second},
	}})
	first := w.view().Calibration()
	w.now = w.now.Add(time.Minute)
	w.must(command.Tick{Term: 1})
	raised := w.view().Calibration()
	if a, b := first.Sizes[0].Scales(), raised.Sizes[0].Scales(); b.P50 <= a.P50 || b.P90 <= a.P90 || raised.P90.Total != 0 {
		t.Errorf("overdue: %+v became %+v", first, raised)
	}
	w.must(command.Tick{Term: 1})
	w.place("n3", id)
	if last := w.view().Calibration(); last.Sizes[0].Scale != raised.Sizes[0].Scale || last.P90.Total != 1 {
		t.Errorf("started: %+v became %+v", raised, last)
	}
}

// TestOverdueEstimatesOfAllCount checks that neither a long queue of one
// organization nor estimates that are not overdue yet keep other overdue
// estimates from counting.
func TestOverdueEstimatesOfAllCount(t *testing.T) {
	w := newestWorld(t)
	record := func(id compute.ExecutionID, wait time.Duration) {
		w.must(command.RecordEstimates{Term: w.term, At: w.now, Estimates: []compute.StartEstimate{
			{Execution: id, P50: wait, P90: wait},
		}})
	}
	for range 1_000 { // As many as one Tick scans.
		record(w.submit("t4"), 24*time.Hour)
	}
	w.ada = w.addUser("grace")
	w.org = w.ada.Org
	id := w.submit("t4")
	record(id, time.Second)
	w.now = w.now.Add(time.Minute)
	w.must(command.Tick{Term: w.term})
	if e := w.get(id).Estimate; e == nil || !e.Late50 || !e.Late90 {
		t.Errorf("the estimate is %+v, and it is overdue", e)
	}
}

// TestBadEstimatesAreIgnored checks that absurd estimates are not stored.
func TestBadEstimatesAreIgnored(t *testing.T) {
	w := newWorld(t)
	for _, e := range []compute.StartEstimate{
		{P50: -1, P90: 1}, {P50: 2, P90: 1}, {P50: 1, P90: 1 << 62},
	} {
		e.Execution = w.submit("t4")
		if r := w.must(command.RecordEstimates{Term: 1, Estimates: []compute.StartEstimate{e}}); r.Count != 0 {
			t.Errorf("%+v was recorded", e)
		}
	}
}
