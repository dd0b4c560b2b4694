package leader

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/statetest"
)

// TestRequeuedRunWaitsAnew has a run of a GPU selection lose its attempt long after
// the submit: it is known since when it waits, and it is not dropped.
func TestRequeuedRunWaitsAnew(t *testing.T) {
	l := statetest.New(t)
	l.Must(command.RegisterNode{Node: compute.Node{ID: l.Node, Name: "n1", Format: format.Newest}})
	l.Must(command.SetFormat{Term: 1, Format: format.Newest})
	parent := l.Must(command.Submit{Op: l.NextOp(), Actor: l.Actor, Execution: compute.Execution{
		ID: compute.ExecutionID{UUID: compute.UUID{50}}, Kind: compute.KindSelection, Selection: &compute.Selection{},
		Timeout: time.Minute,
	}}).Execution
	run := compute.ExecutionID{UUID: compute.UUID{51}}
	l.Must(command.TakeSelection{Term: 1, Parent: parent, Children: []command.Child{{ID: run, Profile: "t4"}}})
	judged := func() (stops []compute.CandidateStop, requeued compute.Instant) {
		t.Helper()
		view := l.Machine.View()
		e, ok := view.AnyExecution(parent)
		if !ok {
			t.Fatal("the selection is gone")
		}
		r := selectionOf(view, e, view.Now().Time())
		r.Created = r.Now.Add(-2 * time.Hour)
		return r.Stops(), r.Candidates[0].Runs[0].Requeued
	}
	if stops, requeued := judged(); len(stops) != 1 || !requeued.IsZero() {
		t.Fatalf("before it began: %+v, requeued at %v", stops, requeued)
	}
	l.Must(command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{{
		Execution: run, Node: l.Node, GPUs: []compute.GPUShare{{GPU: "A", Milli: compute.WholeGPU}},
	}}}})
	l.Must(command.FinishAttempt{Node: l.Node, Outcome: compute.Outcome{
		Execution: run, Epoch: 1, Status: compute.StatusSystemFailure, Reason: compute.ReasonStartFailed,
	}})
	if stops, requeued := judged(); len(stops) != 0 || requeued.IsZero() {
		t.Errorf("after its attempt: %+v, requeued at %v", stops, requeued)
	}
}
