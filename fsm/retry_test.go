package fsm_test

import (
	"testing"
	"time"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// newTrustWorld returns a world whose state has the newest format.
func newTrustWorld(t *testing.T) *world {
	w := newEmptyWorld(t)
	w.format = format.Newest
	w.bootstrap(settings())
	w.addNode("n1", "h100", "h100", "t4")
	w.addNode("n2", "a100", "t4")
	w.addNode("n3", "t4", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	return w
}

// lost returns the leader's report that an execution's newest attempt is lost.
func (w *world) lost(id compute.ExecutionID) command.LoseAttempts {
	w.Helper()
	a := w.attempt(id)
	return command.LoseAttempts{Term: w.term, Node: a.Node, Attempts: []command.AttemptRef{{Execution: id, Epoch: a.Epoch}}}
}

// failed returns a node's report that an execution's attempt ended with a
// system failure. Without a duration its code never started.
func (w *world) failed(id compute.ExecutionID, why compute.Reason, d time.Duration) command.FinishAttempt {
	w.Helper()
	c := w.ended(id, compute.StatusSystemFailure, d)
	c.Outcome.Reason = why
	if d == 0 {
		c.Outcome.Ran, c.Outcome.StartedAt = false, 0
	}
	return c
}

func retries(n int) func(*compute.Execution) {
	return func(e *compute.Execution) { e.MaxRetries = n }
}

// TestRetriedThenCharged follows a retry from the loss of a node to the end of
// the execution, which is charged only for its last attempt.
func TestRetriedThenCharged(t *testing.T) {
	w := newTrustWorld(t)
	id := w.submit("t4", retries(1))
	before, submitted := w.account().Held, w.get(id).SubmitIndex
	w.place("n1", id)
	w.must(w.started(id))
	lost := w.lost(id)
	late := w.ended(id, compute.StatusCompleted, time.Minute)
	w.must(lost)
	w.wantStatus(id, compute.StatusQueued, compute.ReasonRetry)
	e, a := w.get(id), w.attempt(id)
	if e.Retries != 1 || e.SubmitIndex != submitted || !e.StartedAt.IsZero() || !e.PlacedAt.IsZero() {
		t.Errorf("queued again as %+v", e)
	}
	if !a.Ended || a.Status != compute.StatusSystemFailure || a.Reason != compute.ReasonNodeLost {
		t.Errorf("the attempt ended as %s for %s", a.Status, a.Reason)
	}
	w.wantMoney(100*compute.Credit, before)
	w.refused(late, compute.CodeConflict, "stale_attempt")
	if r := w.must(lost); r.Count != 0 {
		t.Error("an attempt was lost twice")
	}
	w.place("n2", id)
	w.refused(late, compute.CodeConflict, "stale_attempt")
	w.must(w.started(id))
	w.must(w.ended(id, compute.StatusCompleted, 3*time.Second))
	if e := w.get(id); e.Epoch != 2 || e.Billed != micro(100*3) {
		t.Errorf("after attempt %d it was billed %s, want the last one's 3 s", e.Epoch, e.Billed)
	}
	free := false
	for l := range w.view().Ledger(w.org, 0) {
		free = free || l.Execution == id && l.Epoch == 1 && l.Note == "free: system failure, node_lost"
	}
	if !free {
		t.Error("the ledger does not say that the first attempt was free")
	}
}

// TestWhichEndsAreRetried checks which ends of a first attempt lead to a second
// one.
func TestWhichEndsAreRetried(t *testing.T) {
	fail := func(why compute.Reason, d time.Duration) func(*world, compute.ExecutionID) {
		return func(w *world, id compute.ExecutionID) { w.must(w.failed(id, why, d)) }
	}
	stop := func(w *world, id compute.ExecutionID) {
		w.must(command.StopExecution{Op: w.op(w.org, "x"), Actor: w.ada, Execution: id, Stop: compute.StopGraceful})
		w.must(w.lost(id))
	}
	exit := func(w *world, id compute.ExecutionID) {
		c := w.ended(id, compute.StatusFailed, time.Second)
		c.Outcome.Reason = compute.ReasonExitCode
		w.must(c)
	}
	lose := func(w *world, id compute.ExecutionID) { w.must(w.lost(id)) }
	tests := []struct {
		name    string
		retries int
		end     func(*world, compute.ExecutionID)
		status  compute.Status
		reason  compute.Reason
		used    int // Retries.
		avoided int
	}{
		{"its node is lost", 1, lose, compute.StatusQueued, compute.ReasonRetry, 1, 0},
		{"its node is lost, no retries", 0, lose, compute.StatusSystemFailure, compute.ReasonNodeLost, 0, 0},
		{"its supervisor was killed", 1, fail(compute.ReasonSupervisorLost, time.Second), compute.StatusQueued, compute.ReasonRetry, 1, 0},
		{"its supervisor was killed before a word", 0, fail(compute.ReasonSupervisorLost, 0), compute.StatusSystemFailure, compute.ReasonSupervisorLost, 0, 0},
		{"its node was cut off", 1, fail(compute.ReasonNodeLost, time.Second), compute.StatusQueued, compute.ReasonRetry, 1, 0},
		{"it could not be started", 0, fail(compute.ReasonStartFailed, 0), compute.StatusQueued, compute.ReasonRetry, 0, 1},
		{"it could not be read", 0, fail(compute.ReasonInputsLost, 0), compute.StatusQueued, compute.ReasonRetry, 0, 1},
		{"its node was cut off before it started", 0, fail(compute.ReasonNodeLost, 0), compute.StatusQueued, compute.ReasonRetry, 0, 1},
		{"it had started after all", 0, fail(compute.ReasonStartFailed, time.Second), compute.StatusSystemFailure, compute.ReasonStartFailed, 0, 0},
		{"its code failed", 1, exit, compute.StatusFailed, compute.ReasonExitCode, 0, 0},
		{"its user stopped it", 1, stop, compute.StatusSystemFailure, compute.ReasonNodeLost, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newTrustWorld(t)
			id := w.submit("t4", retries(tt.retries))
			w.place("n1", id)
			tt.end(w, id)
			w.wantStatus(id, tt.status, tt.reason)
			if e := w.get(id); e.Retries != tt.used || len(e.Avoid) != tt.avoided {
				t.Errorf("%d retries, %d nodes to avoid; want %d and %d", e.Retries, len(e.Avoid), tt.used, tt.avoided)
			}
		})
	}
}

// TestStartedIsNotUnstarted checks that a node's report that an attempt never
// started is ignored if the state knows that it started.
func TestStartedIsNotUnstarted(t *testing.T) {
	w := newTrustWorld(t)
	id := w.submit("t4")
	w.place("n1", id)
	w.must(w.started(id))
	w.must(w.failed(id, compute.ReasonStartFailed, 0))
	w.wantStatus(id, compute.StatusSystemFailure, compute.ReasonStartFailed)
}

// TestStartsAreBounded checks that an execution ends however many nodes fail to
// start it.
func TestStartsAreBounded(t *testing.T) {
	w := newTrustWorld(t)
	id := w.submit("t4", retries(1))
	for i := range attempt.MaxUnstarted + 1 {
		w.place([]string{"n1", "n2", "n3", "n1"}[i], id)
		w.must(w.failed(id, compute.ReasonStartFailed, 0))
		w.wantStatus(id, compute.StatusQueued, compute.ReasonRetry)
	}
	if e := w.get(id); len(e.Avoid) != attempt.MaxUnstarted || e.Retries != 1 {
		t.Errorf("%d nodes to avoid, %d retries", len(e.Avoid), e.Retries)
	}
	w.place("n2", id)
	w.must(w.failed(id, compute.ReasonStartFailed, 0))
	w.wantStatus(id, compute.StatusSystemFailure, compute.ReasonStartFailed)
	w.wantMoney(100*compute.Credit, 0)
}

// TestRunsOfSelectionsAreRetried checks that the runs of a GPU selection are
// retried by default, and that the selection does not end before them.
func TestRunsOfSelectionsAreRetried(t *testing.T) {
	w := newTrustWorld(t)
	parent := w.submit("", func(e *compute.Execution) {
		e.Kind, e.Selection = compute.KindSelection, &compute.Selection{}
	})
	w.must(w.take(parent, "gpu.t4"))
	child := w.children(parent)[0].ID
	for range attempt.SelectionRetries {
		w.place("n1", child)
		w.must(w.lost(child))
		w.wantStatus(child, compute.StatusQueued, compute.ReasonRetry)
		w.wantStatus(parent, compute.StatusRunning, compute.ReasonNone)
	}
	w.place("n1", child)
	w.must(w.lost(child))
	w.wantStatus(child, compute.StatusSystemFailure, compute.ReasonNodeLost)
	w.wantStatus(parent, compute.StatusSystemFailure, compute.ReasonChildrenFailed)
}

// TestNoRetryBelowItsFormat checks that below format 3 all executions end as in
// older programs.
func TestNoRetryBelowItsFormat(t *testing.T) {
	w := newWorld(t)
	e := w.python("t4").Execution
	e.MaxRetries = 1
	if err := w.view().Allows(command.Submit{Execution: e}); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("a retry is allowed: %v", err)
	}
	id := w.submit("t4", retries(1))
	w.place("n3", id)
	w.must(w.failed(id, compute.ReasonStartFailed, 0))
	w.wantStatus(id, compute.StatusSystemFailure, compute.ReasonStartFailed)
}

func TestRetriesAreLimited(t *testing.T) {
	w := newTrustWorld(t)
	for _, n := range []int{-1, 11} {
		c := w.python("t4")
		c.Op, c.Execution.MaxRetries = command.Op{}, n
		w.refused(c, compute.CodeInvalid, "max_retries")
	}
}

func TestOperatorControlsBrake(t *testing.T) {
	w := newTrustWorld(t)
	w.refused(command.SetBrake{Actor: w.ada, Release: true}, compute.CodeForbidden, "not_an_operator")
	w.refused(command.SetBrake{Actor: w.root, Share: new(101)}, compute.CodeInvalid, "share_percent")
	w.pass(time.Minute)
	for _, name := range []string{"n2", "n3"} {
		w.must(command.SetNodeState{Term: w.term, Node: w.node(name).ID, State: compute.NodeDown})
	}
	if got := w.view().Vanished(); len(got) != 2 {
		t.Fatalf("%d nodes vanished, want 2", len(got))
	}
	w.must(command.SetBrake{Op: w.op(compute.OrgID{}, "share"), Actor: w.root, Share: new(70)})
	if got := w.view().Vanished(); got != nil {
		t.Errorf("two of three are no more than 70 %%, and %d nodes are held", len(got))
	}
	w.must(command.SetBrake{Op: w.op(compute.OrgID{}, "third"), Actor: w.root, Share: new(0)})
	if r := w.must(command.SetBrake{Op: w.op(compute.OrgID{}, "release"), Actor: w.root, Release: true}); r.Count != 0 {
		t.Errorf("%d nodes are held after the release", r.Count)
	}
	if got := w.view().Vanished(); got != nil || w.view().Brake().ReleasedAt.IsZero() {
		t.Errorf("%d nodes are held, released at %s", len(got), w.view().Brake().ReleasedAt)
	}
}

// TestBrakeHoldsLosses checks that the state gives no attempt up while too many
// nodes are lost at once, whatever a leader requests. Attempts on drained nodes
// are given up nevertheless.
func TestBrakeHoldsLosses(t *testing.T) {
	w := newTrustWorld(t)
	id := w.submit("t4", retries(1))
	w.place("n3", id)
	w.must(w.started(id))
	down := func(name string) command.SetNodeState {
		return command.SetNodeState{Term: w.term, Node: w.node(name).ID, State: compute.NodeDown}
	}
	w.must(down("n3"))
	lost := w.lost(id)
	w.must(down("n2"))
	w.refused(lost, compute.CodeConflict, "braked")
	w.pass(time.Hour)
	w.refused(lost, compute.CodeConflict, "braked")
	if r := w.must(command.SetBrake{Actor: w.root, Release: true}); r.Count != 0 {
		t.Errorf("%d nodes hold the brake after the release", r.Count)
	}
	w.must(lost)
	w.wantStatus(id, compute.StatusQueued, compute.ReasonRetry)
}

func TestBrakeSparesDrainedNodes(t *testing.T) {
	w := newTrustWorld(t)
	id := w.submit("t4", retries(1))
	w.place("n3", id)
	w.addNode("n4")
	w.must(command.DrainNode{Actor: w.root, Node: w.node("n3").ID, Drained: true})
	for _, name := range []string{"n1", "n2", "n3"} {
		w.must(command.SetNodeState{Term: w.term, Node: w.node(name).ID, State: compute.NodeDown})
	}
	if got := w.view().Vanished(); len(got) != 2 {
		t.Fatalf("%d nodes hold the brake, want 2", len(got))
	}
	w.must(w.lost(id))
	w.wantStatus(id, compute.StatusQueued, compute.ReasonRetry)
}

// TestNoBrakeBelowItsFormat checks that below format 3 no brake is recorded,
// because older programs do not know it.
func TestNoBrakeBelowItsFormat(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"n2", "n3"} {
		w.must(command.SetNodeState{Term: w.term, Node: w.node(name).ID, State: compute.NodeDown})
	}
	if got := w.view().Vanished(); got != nil || w.view().Brake() != (compute.Brake{}) {
		t.Errorf("%d nodes hold the brake %+v", len(got), w.view().Brake())
	}
	if err := w.view().Allows(command.SetBrake{Release: true}); compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("a release: %v", err)
	}
}

// TestBrakeComesWithItsFormat checks that nodes lost in an older format count
// for the brake from the entry on that raises the format.
func TestBrakeComesWithItsFormat(t *testing.T) {
	w := newEmptyWorld(t)
	w.format = format.Newest
	w.fill()
	for _, name := range []string{"n2", "n3"} {
		w.must(command.SetNodeState{Term: w.term, Node: w.node(name).ID, State: compute.NodeDown})
	}
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	if got := w.view().Vanished(); len(got) != 2 {
		t.Errorf("%d nodes hold the brake, want 2", len(got))
	}
}
