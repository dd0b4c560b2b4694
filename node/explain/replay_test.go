package explain

import (
	"testing"

	"berth/compute"
	"berth/fsm/command"
	"berth/node/statetest"
	"berth/scheduler"
)

// TestOutcomeSaysWhyADecisionWasSkipped lets something happen between a plan and
// its entry, for each thing that the state checks, and asks what became of the
// plan's second decision.
func TestOutcomeSaysWhyADecisionWasSkipped(t *testing.T) {
	tests := []struct {
		name   string
		happen func(l *statetest.State, plan *compute.Plan)
		want   string
	}{
		{"nothing", func(*statetest.State, *compute.Plan) {}, ""},
		{
			"its organization", func(l *statetest.State, _ *compute.Plan) { l.Quota(compute.Quota{Concurrent: 1}) },
			"its organization was at its limit of attempts",
		},
		{
			"its key", func(l *statetest.State, _ *compute.Plan) { l.Quota(compute.Quota{Key: l.Key, Concurrent: 1}) },
			"its API key was at its limit of attempts",
		},
		{
			"its tag", func(l *statetest.State, _ *compute.Plan) { l.Quota(compute.Quota{Tag: "red", Concurrent: 1}) },
			"one of its tags was at its limit of attempts",
		},
		{
			"GPUs", func(l *statetest.State, _ *compute.Plan) { l.Quota(compute.Quota{MilliGPU: 1500}) },
			"a quota of GPUs was used up",
		},
		{"drained", func(l *statetest.State, _ *compute.Plan) {
			l.Must(command.DrainNode{Op: l.NextOp(), Actor: command.Actor{Root: true}, Node: l.Node, Drained: true})
		}, "the node was drained by then"},
		{"down", func(l *statetest.State, _ *compute.Plan) {
			l.Must(command.SetNodeState{Term: 1, Node: l.Node, State: compute.NodeDown})
		}, "the node was " + compute.NodeDown.String() + " by then"},
		{"no capacity", func(_ *statetest.State, plan *compute.Plan) {
			for i := range plan.Assignments {
				plan.Assignments[i].GPUs = []compute.GPUShare{{GPU: "A", Milli: 1000}}
			}
		}, "the node no longer had the capacity"},
		{"no capacity, after it had waited for a quota", func(l *statetest.State, plan *compute.Plan) {
			l.Must(command.CommitPlan{Term: 1, Plan: compute.Plan{Waiting: []compute.Waiting{
				{Execution: l.Waiting[1], Reason: compute.ReasonQuotaGPUs},
			}}})
			for i := range plan.Assignments {
				plan.Assignments[i].GPUs = []compute.GPUShare{{GPU: "A", Milli: 1000}}
			}
		}, "the node no longer had the capacity"},
		{"stopped", func(l *statetest.State, _ *compute.Plan) {
			l.Must(command.StopExecution{Op: l.NextOp(), Actor: l.Actor, Execution: l.Waiting[1], Stop: compute.StopHard})
		}, "the execution was " + compute.StatusAborted.String() + " by then"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := statetest.New(t)
			plan := scheduler.Pack(l.Machine.View())
			if len(plan.Assignments) != 2 || plan.Assignments[0].Execution != l.Waiting[0] {
				t.Fatalf("the plan is %+v", plan)
			}
			tt.happen(l, &plan)
			before := l.Machine.View()
			l.Must(command.CommitPlan{Term: 1, ViewIndex: before.Index(), Plan: plan})
			d := compute.Decision{Execution: l.Waiting[1], Node: l.Node}
			applied, why := outcome(before, l.Machine.View(), &d)
			if applied != (tt.want == "") || why != tt.want {
				t.Errorf("applied %v, skipped because %q, want %q", applied, why, tt.want)
			}
		})
	}
}
