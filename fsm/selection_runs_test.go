package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// repeated takes a GPU selection that executes the code n times on each
// profile, and returns its parent.
func (w *world) repeated(n int, profiles []string, change ...func(*compute.Execution)) compute.ExecutionID {
	w.Helper()
	parent := w.selection(append(change, func(e *compute.Execution) { e.Selection.Repeats = n })...)
	take := w.take(parent)
	for _, p := range profiles {
		for i := range n {
			take.Children = append(take.Children, command.Child{ID: w.executionID(), Profile: p, Repeat: i + 1})
		}
	}
	w.must(take)
	return parent
}

// stopRuns stops runs of a parent for a reason.
func (w *world) stopRuns(parent compute.ExecutionID, why compute.Reason, ids ...compute.ExecutionID) command.StopCandidates {
	c := command.StopCandidates{Term: w.term, Parent: parent}
	for _, id := range ids {
		c.Stops = append(c.Stops, compute.CandidateStop{
			Execution: id, Reason: why, Detail: "said why", Predicted: time.Minute,
		})
	}
	return c
}

func TestRunsOfATypeFollowEachOther(t *testing.T) {
	const (
		done    = compute.StatusCompleted
		stopped = compute.StatusCancelled
		waits   = compute.StatusPending
	)
	tests := []struct {
		name   string
		first  compute.Status // The end of the first run on t4.
		second compute.Status
		reason compute.Reason
		third  compute.Status
	}{
		{"completed", done, compute.StatusQueued, compute.ReasonScheduling, waits},
		{"our fault", compute.StatusSystemFailure, compute.StatusQueued, compute.ReasonScheduling, waits},
		{"its code failed", compute.StatusFailed, stopped, compute.ReasonStoppedEarly, stopped},
		{"aborted", compute.StatusAborted, compute.StatusAborted, compute.ReasonNone, compute.StatusAborted},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			parent := w.repeated(3, []string{"gpu.t4", "gpu.h100"})
			c := w.children(parent)
			if len(c) != 6 || c[3].Profile != "gpu.t4" || c[3].Repeat != 1 || c[5].Repeat != 3 {
				t.Fatalf("children are %+v", c)
			}
			w.wantStatus(c[3].ID, compute.StatusQueued, compute.ReasonScheduling)
			w.wantStatus(c[4].ID, waits, compute.ReasonEarlierRun)
			if n := w.view().QueueLen(); n != 2 {
				t.Fatalf("%d executions are queued, want the first runs", n)
			}
			for range w.view().PendingSelections() {
				t.Fatal("a run that waits counts as a queue message")
			}
			w.place("n3", c[3].ID)
			w.must(w.ended(c[3].ID, test.first, time.Second))
			w.wantStatus(c[4].ID, test.second, test.reason)
			if got := w.get(c[5].ID).Status; got != test.third {
				t.Errorf("the third run is %s, want %s", got, test.third)
			}
			w.wantStatus(c[0].ID, compute.StatusQueued, compute.ReasonScheduling)
			w.wantStatus(parent, compute.StatusRunning, compute.ReasonNone)
		})
	}
}

func TestRepeatsWithinTheCeiling(t *testing.T) {
	// A minute costs 6,000 on a t4 and 54,000 on an h100.
	tests := []struct {
		name    string
		ceiling compute.Credits
		runs    int
		detail  string
	}{
		{"pays for all", 300_000, 5, ""},
		{"pays for three", 190_000, 3, "max_credits pays for 3 of 5 runs of each type"},
		{"does not pay for one", 50_000, 1, "max_credits pays for 1 of 5 runs of each type"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			parent := w.repeated(5, []string{"gpu.t4", "gpu.h100"},
				func(e *compute.Execution) { e.MaxCredits = test.ceiling })
			c := w.children(parent)
			if len(c) != 2*test.runs || w.get(parent).Detail != test.detail {
				t.Fatalf("%d children, detail %q", len(c), w.get(parent).Detail)
			}
			var sum compute.Credits
			for _, e := range c {
				sum += e.MaxCredits
			}
			if sum > test.ceiling {
				t.Errorf("the runs may cost %d, the ceiling is %d", sum, test.ceiling)
			}
		})
	}
}

func TestRepeatsWithoutCredits(t *testing.T) {
	w := newPoorWorld(t, 80_000, "n1", "t4", "h100")
	parent := w.repeated(5, []string{"gpu.t4", "gpu.h100"})
	// 54,000 for one run of h100 leave 26,000: four runs of t4.
	c := w.children(parent)
	if len(c) != 5 || c[0].Profile != "gpu.h100" || c[4].Repeat != 4 {
		t.Fatalf("children are %+v", c)
	}
	want := "gpu.h100: credits exhausted after 1 run; gpu.t4: credits exhausted after 4 runs"
	if d := w.get(parent).Detail; d != want {
		t.Errorf("detail is %q, want %q", d, want)
	}
}

func TestStopCandidates(t *testing.T) {
	w := newWorld(t)
	parent := w.repeated(2, []string{"gpu.t4", "gpu.h100", "gpu.a100"})
	c := w.children(parent)
	a100, h100, t4 := c[0].ID, c[2].ID, c[4].ID
	w.complete(h100, "n1", time.Second)
	w.place("n3", t4)
	w.must(w.started(t4))

	foreign := w.submit("t4")
	r := w.must(w.stopRuns(parent, compute.ReasonNoCapacity, a100, t4, h100, foreign, w.executionID()))
	if r.Count != 1 {
		t.Errorf("%d stopped, want the one that was not placed", r.Count)
	}
	w.wantStatus(a100, compute.StatusCancelled, compute.ReasonNoCapacity)
	w.wantStatus(c[1].ID, compute.StatusCancelled, compute.ReasonNoCapacity)
	if r := w.must(w.stopRuns(parent, compute.ReasonExitCode, t4)); r.Count != 0 {
		t.Error("stopped for a reason that is none")
	}
	w.must(w.stopRuns(parent, compute.ReasonStoppedEarly, t4))
	w.wantStatus(t4, compute.StatusRunning, compute.ReasonStoppedEarly)
	if r := w.must(w.stopRuns(parent, compute.ReasonDeadline, t4)); r.Count != 0 {
		t.Error("stopped twice")
	}
	end := w.ended(t4, compute.StatusCancelled, 3*time.Second)
	end.Outcome.Detail = "stopped on request"
	w.must(end)
	w.wantStatus(t4, compute.StatusCancelled, compute.ReasonStoppedEarly)
	if e := w.get(t4); e.Detail != "said why" || e.Predicted != time.Minute || e.Billed != 300 {
		t.Errorf("it ended with %q, predicted %s, billed %d", e.Detail, e.Predicted, e.Billed)
	}
	w.wantStatus(c[5].ID, compute.StatusCancelled, compute.ReasonStoppedEarly)
	w.complete(c[3].ID, "n1", time.Second)
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)

	w.refused(w.stopRuns(parent, compute.ReasonDeadline, t4), compute.CodeConflict, "already_ended")
	w.refused(w.stopRuns(foreign, compute.ReasonDeadline, t4), compute.CodeNotFound, "execution_not_found")
	old := w.stopRuns(parent, compute.ReasonDeadline)
	w.term++
	w.must(command.Tick{Term: w.term})
	w.refused(old, compute.CodeConflict, "stale_term")
}

func TestRunThatCompletesBeforeItsStop(t *testing.T) {
	w := newWorld(t)
	parent := w.repeated(1, []string{"gpu.t4"})
	c := w.children(parent)[0].ID
	w.place("n3", c)
	w.must(w.started(c))
	w.must(w.stopRuns(parent, compute.ReasonDeadline, c))
	w.must(w.ended(c, compute.StatusCompleted, time.Second))
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)
	if e := w.get(c); e.Reason != compute.ReasonNone || e.Detail != "" || e.Predicted != 0 {
		t.Errorf("it ended for %s, %q, predicted %s", e.Reason, e.Detail, e.Predicted)
	}
}

func TestParentExplainsFailure(t *testing.T) {
	w := newWorld(t)
	parent := w.repeated(2, []string{"gpu.t4", "gpu.h100"})
	c := w.children(parent)
	w.must(w.stopRuns(parent, compute.ReasonNoCapacity, c[0].ID))
	w.place("n3", c[2].ID)
	end := w.ended(c[2].ID, compute.StatusFailed, time.Second)
	end.Outcome.Reason, end.Outcome.Detail, end.Outcome.ExitCode = compute.ReasonExitCode, "exit code 3", 3
	w.must(end)
	w.wantStatus(parent, compute.StatusFailed, compute.ReasonChildrenFailed)
	const want = "gpu.h100: no_capacity (said why); gpu.t4: exit_code (exit code 3)"
	if d := w.get(parent).Detail; d != want {
		t.Errorf("detail is %q, want %q", d, want)
	}

	starved := w.repeated(2, []string{"gpu.t4", "gpu.h100"})
	c = w.children(starved)
	w.must(w.stopRuns(starved, compute.ReasonNoCapacity, c[0].ID, c[2].ID))
	w.wantStatus(starved, compute.StatusFailed, compute.ReasonNoCapacity)
	w.wantMoney(100*compute.Credit-100, 0)
}

func TestAbortOfRepeats(t *testing.T) {
	w := newWorld(t)
	parent := w.repeated(3, []string{"gpu.t4", "gpu.h100"})
	placed := w.children(parent)[3].ID
	w.place("n3", placed)
	w.must(command.StopExecution{Actor: w.ada, Execution: parent, Stop: compute.StopHard})
	for i, c := range w.children(parent) {
		if c.ID != placed && i < 3 && (c.Status != compute.StatusAborted || c.Reason != compute.ReasonParentEnded) {
			t.Errorf("run %d of %s is %s (%s)", c.Repeat, c.Profile, c.Status, c.Reason)
		}
	}
	w.must(w.ended(placed, compute.StatusAborted, time.Second))
	w.wantStatus(parent, compute.StatusAborted, compute.ReasonAborted)
	for range w.view().RunningSelections() {
		t.Error("an ended GPU selection counts as running")
	}
}

func TestRepeatsAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*compute.Selection){
		"repeats":          func(s *compute.Selection) { s.Repeats = compute.MaxRepeats + 1 },
		"deadline_seconds": func(s *compute.Selection) { s.Deadline = compute.MaxDeadline + 1 },
	} {
		c := w.python("")
		c.Execution.Kind, c.Execution.Selection = compute.KindSelection, &compute.Selection{}
		change(c.Execution.Selection)
		w.refused(c, compute.CodeInvalid, name)
	}
}
