package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// selection submits a GPU selection and returns its parent.
func (w *world) selection(change ...func(*compute.Execution)) compute.ExecutionID {
	w.Helper()
	return w.submit("ignored", append([]func(*compute.Execution){func(e *compute.Execution) {
		e.Kind, e.Selection = compute.KindSelection, &compute.Selection{}
	}}, change...)...)
}

// take takes a parent's queue message with a child per profile.
func (w *world) take(parent compute.ExecutionID, profiles ...string) command.TakeSelection {
	c := command.TakeSelection{Term: w.term, Parent: parent}
	for _, p := range profiles {
		c.Children = append(c.Children, command.Child{ID: w.executionID(), Profile: p})
	}
	return c
}

// nodeOf returns the node of newWorld that has the GPU type of e.
func nodeOf(e *compute.Execution) string {
	return map[string]string{
		"gpu.h100": "n1", "gpu.l40s": "n1", "gpu.a100": "n2", "gpu.t4": "n3",
	}[e.Profile]
}

// children returns the children of a parent.
func (w *world) children(parent compute.ExecutionID) []*compute.Execution {
	return w.view().Children(parent)
}

func TestSelectionRunsOnEachType(t *testing.T) {
	w := newWorld(t)
	parent := w.selection(func(e *compute.Execution) {
		e.Selection.GPUTypes = []string{"t4", "H100", "gpu.t4"}
		e.Selection.Objective = compute.ObjectiveCheapest
		e.CallbackURLs = []string{"https://example.com/"}
		e.Tags = []string{"race"}
	})
	w.wantStatus(parent, compute.StatusPending, compute.ReasonSelecting)
	w.wantMoney(100*compute.Credit, 0)
	p := w.get(parent)
	if p.Profile != "gpu_selection" || strings.Join(p.Selection.GPUTypes, " ") != "h100 t4" ||
		p.Selection.Objective != compute.ObjectiveCheapest {
		t.Fatalf("parent is %+v", p.Selection)
	}
	pending := 0
	for range w.view().PendingSelections() {
		pending++
	}
	if pending != 1 || w.view().QueueLen() != 0 {
		t.Fatalf("%d pending, %d queued", pending, w.view().QueueLen())
	}

	take := w.take(parent, "gpu.t4", "gpu.h100")
	if r := w.must(take); r.Count != 2 {
		t.Fatalf("%d children", r.Count)
	}
	w.refused(take, compute.CodeConflict, "already_taken")
	w.wantStatus(parent, compute.StatusRunning, compute.ReasonNone)
	w.wantMoney(100*compute.Credit, micro(60*900+60*100))
	c := w.children(parent)
	if c[0].Profile != "gpu.h100" || c[1].Profile != "gpu.t4" || c[0].Tags[0] != "race" ||
		c[0].Parent != parent || c[0].Kind != compute.KindSubSelection || c[0].CallbackURLs != nil {
		t.Fatalf("children are %+v %+v", c[0], c[1])
	}
	w.place("n1", c[0].ID)
	w.place("n3", c[1].ID)
	w.must(w.started(c[0].ID))
	if w.get(parent).StartedAt.IsZero() {
		t.Error("the parent did not start with its first child")
	}
	w.must(w.ended(c[0].ID, compute.StatusCompleted, time.Second))
	w.wantStatus(parent, compute.StatusRunning, compute.ReasonNone)
	w.must(w.ended(c[1].ID, compute.StatusFailed, 8*time.Second))
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)
	if p := w.get(parent); p.Billed != 900+800 || p.Duration != 8*time.Second {
		t.Errorf("parent is billed %d for %s", p.Billed, p.Duration)
	}
	w.wantMoney(100*compute.Credit-micro(1700), 0)
	if _, spent, _ := w.view().Totals(w.org); spent != 1700 {
		t.Errorf("spent %d, want 1700: the parent's credits are its children's", spent)
	}
	callbacks := 0
	for c := range w.view().Callbacks() {
		callbacks++
		if c.Execution != parent {
			t.Error("a child calls back")
		}
	}
	if callbacks != 1 {
		t.Errorf("%d callbacks, want 1", callbacks)
	}
}

func TestParentEndsByItsChildren(t *testing.T) {
	const (
		done    = compute.StatusCompleted
		failed  = compute.StatusFailed
		ours    = compute.StatusSystemFailure
		aborted = compute.StatusAborted
		stopped = compute.StatusCancelled
	)
	tests := []struct {
		name     string
		children []compute.Status
		want     compute.Status
		reason   compute.Reason
	}{
		{"all completed", []compute.Status{done, done}, done, 0},
		{"one completed", []compute.Status{failed, ours, aborted, done}, done, 0},
		{"all failed", []compute.Status{failed, failed}, failed, compute.ReasonChildrenFailed},
		{"failed and ours", []compute.Status{ours, failed}, failed, compute.ReasonChildrenFailed},
		{"all ours", []compute.Status{ours, ours}, ours, compute.ReasonChildrenFailed},
		{"all aborted", []compute.Status{aborted, aborted}, aborted, compute.ReasonAborted},
		{"all stopped", []compute.Status{aborted, stopped}, stopped, compute.ReasonStopped},
		{"stopped and failed", []compute.Status{stopped, failed}, failed, compute.ReasonChildrenFailed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			parent := w.selection()
			profiles := []string{"gpu.a100", "gpu.h100", "gpu.l40s", "gpu.t4"}[:len(test.children)]
			w.must(w.take(parent, profiles...))
			for i, c := range w.children(parent) {
				w.place(nodeOf(c), c.ID)
				w.must(w.ended(c.ID, test.children[i], time.Second))
			}
			w.wantStatus(parent, test.want, test.reason)
		})
	}
}

func TestSelectionWithoutChildrenFails(t *testing.T) {
	tests := []struct {
		name     string
		profiles []string
		reason   compute.Reason
		want     compute.Reason
	}{
		{"none asked", nil, compute.ReasonNone, compute.ReasonNoCandidates},
		{"none, for a reason", nil, compute.ReasonNodesDown, compute.ReasonNodesDown},
		{"types that are gone", []string{"gpu.b200"}, compute.ReasonNone, compute.ReasonNoCandidates},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			parent := w.selection(func(e *compute.Execution) { e.MaxCredits = compute.Credit })
			w.wantMoney(100*compute.Credit, compute.Credit)
			take := w.take(parent, test.profiles...)
			take.Reason, take.Detail = test.reason, "why"
			w.must(take)
			w.wantStatus(parent, compute.StatusFailed, test.want)
			if d := w.get(parent).Detail; !strings.HasPrefix(d, "why") {
				t.Errorf("detail is %q", d)
			}
			w.wantMoney(100*compute.Credit, 0)
		})
	}
}

func TestSelectionIsRefused(t *testing.T) {
	w := newWorld(t)
	submit := func(types ...string) command.Submit {
		c := w.python("")
		c.Execution.Kind = compute.KindSelection
		c.Execution.Selection = &compute.Selection{GPUTypes: types}
		return c
	}
	w.refused(submit("b200"), compute.CodeInvalid, "unknown_profile")
	w.refused(submit("t4.2x"), compute.CodeInvalid, "gpu_types")
	w.refused(submit("cpu"), compute.CodeInvalid, "unknown_profile")
	w.refused(w.take(w.executionID()), compute.CodeNotFound, "execution_not_found")
	w.refused(w.take(w.submit("t4")), compute.CodeNotFound, "execution_not_found")

	parent := w.selection()
	take := w.take(parent, "gpu.t4", "gpu.h100")
	take.Children[1].ID = take.Children[0].ID
	w.refused(take, compute.CodeConflict, "execution_exists")
	take = w.take(parent, "gpu.t4")
	take.Children[0].ID = parent
	w.refused(take, compute.CodeConflict, "execution_exists")
	w.refused(w.take(parent, make([]string, 17)...), compute.CodeInvalid, "gpu_types")
}

func TestCeilingIsNeverPassed(t *testing.T) {
	tests := []struct {
		name    string
		ceiling compute.Credits
		want    map[string]compute.Credits // Held per child.
	}{
		// For a minute t4 costs 6,000, a100 33,000 and h100 54,000 at most.
		{"enough for all", 93_000, map[string]compute.Credits{
			"gpu.t4": 6000, "gpu.a100": 33_000, "gpu.h100": 54_000,
		}},
		{"the cheap one whole", 30_000, map[string]compute.Credits{
			"gpu.t4": 6000, "gpu.a100": 12_000, "gpu.h100": 12_000,
		}},
		{"equal parts", 9_000, map[string]compute.Credits{
			"gpu.t4": 3000, "gpu.a100": 3000, "gpu.h100": 3000,
		}},
		{"too little for one", 1_700, map[string]compute.Credits{
			"gpu.t4": 566, "gpu.a100": 567,
		}},
		{"too little for all but one", 899, map[string]compute.Credits{"gpu.t4": 299}},
		{"too little for any", 99, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			parent := w.selection(func(e *compute.Execution) { e.MaxCredits = test.ceiling })
			w.must(w.take(parent, "gpu.h100", "gpu.a100", "gpu.t4"))
			var sum compute.Credits
			got := w.children(parent)
			for _, c := range got {
				sum += c.MaxCredits
				if c.Held > test.want[c.Profile] || c.Held < test.want[c.Profile]-1 {
					t.Errorf("%s holds %d, want %d", c.Profile, c.Held, test.want[c.Profile])
				}
				if c.Price.Charge(c.Timeout) > c.MaxCredits {
					t.Errorf("%s may cost %d", c.Profile, c.Price.Charge(c.Timeout))
				}
			}
			if len(got) != len(test.want) {
				t.Errorf("%d children, want %d", len(got), len(test.want))
			}
			if sum > test.ceiling {
				t.Errorf("children may cost %d, the ceiling is %d", sum, test.ceiling)
			}
			if len(got) == 0 {
				w.wantStatus(parent, compute.StatusFailed, compute.ReasonCredits)
			}
			if p := w.get(parent); len(got) < 3 && !strings.Contains(p.Detail, "max_credits buys less than a second") {
				t.Errorf("detail is %q", p.Detail)
			}
		})
	}
}

func TestSelectionTooDearOrGone(t *testing.T) {
	w := newWorld(t)
	parent := w.selection(func(e *compute.Execution) { e.MaxCredits = 99 })
	w.must(w.take(parent, "gpu.t4", "gpu.b200"))
	w.wantStatus(parent, compute.StatusFailed, compute.ReasonCredits)
	if d := w.get(parent).Detail; !strings.Contains(d, "gpu.b200: not available") ||
		!strings.Contains(d, "gpu.t4: its share of max_credits") {
		t.Errorf("detail is %q", d)
	}
}

func TestGraceOfChildrenIsWithinTheCeiling(t *testing.T) {
	w := newGraceWorld(t)
	parent := w.selection(func(e *compute.Execution) { e.MaxCredits = 30_000 })
	w.must(w.take(parent, "gpu.t4", "gpu.a100", "gpu.h100"))
	// For 70 s t4 costs 7,000; 11,500 are left for each of the others.
	w.wantMoney(100*compute.Credit, 30_000)
	for _, c := range w.children(parent) {
		w.place(nodeOf(c), c.ID)
		w.must(w.ended(c.ID, compute.StatusCompleted, c.Timeout+10*time.Second))
		if got := w.get(c.ID); got.Billed != c.Price.Charge(c.Timeout+10*time.Second) {
			t.Errorf("%s is billed %d for %s and the grace", c.Profile, got.Billed, c.Timeout)
		}
	}
	if billed := w.get(parent).Billed; billed > 30_000 || billed < 29_998 {
		t.Errorf("billed %d", billed)
	}
}

func TestSelectionWithoutCredits(t *testing.T) {
	w := newPoorWorld(t, 40_000, "n1", "t4", "h100")
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	if c := w.children(parent); len(c) != 1 || c[0].Profile != "gpu.t4" {
		t.Fatalf("children are %v", c)
	}
	if d := w.get(parent).Detail; d != "gpu.h100: credits exhausted" {
		t.Errorf("detail is %q", d)
	}
	poor := w.selection()
	w.must(w.take(poor, "gpu.h100"))
	w.wantStatus(poor, compute.StatusFailed, compute.ReasonCredits)
}

func TestStopOfAParent(t *testing.T) {
	tests := []struct {
		name   string
		stop   compute.Stop
		child  compute.Status // The node's report on the placed child.
		want   compute.Status
		reason compute.Reason
	}{
		{"hard", compute.StopHard, compute.StatusAborted, compute.StatusAborted, compute.ReasonAborted},
		{"graceful", compute.StopGraceful, compute.StatusCancelled, compute.StatusCancelled, compute.ReasonStopped},
		{
			"the last child completes first", compute.StopHard, compute.StatusCompleted,
			compute.StatusAborted, compute.ReasonAborted,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			parent := w.selection()
			w.must(w.take(parent, "gpu.t4", "gpu.h100"))
			c := w.children(parent)
			queued, placed := c[0].ID, c[1].ID
			w.place("n3", placed)
			w.must(w.started(placed))
			w.must(command.StopExecution{Actor: w.ada, Execution: parent, Stop: test.stop})
			w.wantStatus(queued, test.want, compute.ReasonParentEnded)
			w.wantStatus(parent, compute.StatusRunning, compute.ReasonNone)
			if w.get(placed).Stop != test.stop {
				t.Fatal("the stop was not passed on")
			}
			w.must(w.ended(placed, test.child, time.Second))
			w.wantStatus(parent, test.want, test.reason)
		})
	}
}

func TestStopOfAParentWithoutPlacedChildren(t *testing.T) {
	w := newWorld(t)
	pending := w.selection(func(e *compute.Execution) { e.MaxCredits = 1000 })
	w.must(command.StopExecution{Actor: w.ada, Execution: pending, Stop: compute.StopGraceful})
	w.wantStatus(pending, compute.StatusCancelled, compute.ReasonStopped)
	w.refused(w.take(pending, "gpu.t4"), compute.CodeConflict, "already_taken")

	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	r := w.must(command.StopExecution{Actor: w.ada, Execution: parent, Stop: compute.StopHard})
	if r.Status != compute.StatusAborted {
		t.Errorf("the answer says %s", r.Status)
	}
	w.wantStatus(parent, compute.StatusAborted, compute.ReasonAborted)
	w.wantMoney(100*compute.Credit, 0)
}

func TestOneCompletedAndStoppedParent(t *testing.T) {
	w := newWorld(t)
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	c := w.children(parent)
	w.complete(c[1].ID, "n3", time.Second)
	w.place("n1", c[0].ID)
	w.must(command.StopExecution{Actor: w.ada, Execution: parent, Stop: compute.StopHard})
	w.must(w.ended(c[0].ID, compute.StatusCompleted, time.Second))
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)
}

func TestLongChildrenStayWithinTheCeiling(t *testing.T) {
	w := newWorld(t)
	const ceiling = 2 * compute.Credit
	parent := w.selection(func(e *compute.Execution) {
		e.Timeout, e.MaxCredits = 20*time.Hour, ceiling
	})
	w.must(w.take(parent, "gpu.t4", "gpu.a100"))
	c := w.children(parent)
	w.place("n2", c[0].ID)
	w.place("n3", c[1].ID)
	for range 40 {
		w.pass(30 * time.Minute)
		if held := w.account().Held; held > ceiling {
			t.Fatalf("%s held, the ceiling is %s", held, ceiling)
		}
	}
	for _, child := range c {
		end := w.ended(child.ID, compute.StatusFailed, 20*time.Hour)
		end.Outcome.Reason = compute.ReasonTimeout
		w.must(end)
		if d := w.get(child.ID).Detail; !strings.Contains(d, "what max_credits buys") {
			t.Errorf("detail is %q", d)
		}
	}
	if billed := w.get(parent).Billed; billed > ceiling || billed < ceiling-2*compute.Credits(900) {
		t.Errorf("billed %s of %s", billed, ceiling)
	}
}

func TestChildIsStoppedAlone(t *testing.T) {
	w := newWorld(t)
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4", "gpu.h100"))
	c := w.children(parent)
	w.must(command.StopExecution{Actor: w.ada, Execution: c[0].ID, Stop: compute.StopHard})
	w.wantStatus(c[0].ID, compute.StatusAborted, compute.ReasonAborted)
	w.wantStatus(parent, compute.StatusRunning, compute.ReasonNone)
	w.complete(c[1].ID, "n3", time.Second)
	w.wantStatus(parent, compute.StatusCompleted, compute.ReasonNone)
}

func TestLostChildEndsItsParent(t *testing.T) {
	w := newWorld(t)
	parent := w.selection()
	w.must(w.take(parent, "gpu.t4"))
	c := w.children(parent)[0].ID
	w.place("n3", c)
	w.must(command.LoseAttempts{
		Term: 1, Node: w.node("n3").ID,
		Attempts: []command.AttemptRef{{Execution: c, Epoch: 1}},
	})
	w.wantStatus(parent, compute.StatusSystemFailure, compute.ReasonChildrenFailed)
	w.wantMoney(100*compute.Credit, 0)
}
