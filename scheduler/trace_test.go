package scheduler_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// TestTraceIsPack holds that tracing a plan does not change it, and that the winner of
// the trace is in the plan.
func TestTraceIsPack(t *testing.T) {
	c := newCluster(t, []string{"h100", "h100"}, []string{"h100", "h100"}, []string{"t4"})
	for _, profile := range []string{"h100.2x", "h100", "h100.500m", "t4", "h100.2x", "t4"} {
		c.submit(profile)
	}
	v := c.machine.View()
	plan, decisions, err := scheduler.Trace(t.Context(), v, 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := scheduler.Pack(v); !reflect.DeepEqual(plan, want) {
		t.Fatalf("traced\n%+v\nnot\n%+v", plan, want)
	}
	if len(decisions) != len(plan.Assignments)+len(plan.Waiting) {
		t.Fatalf("%d decisions for %+v", len(decisions), plan)
	}
	for _, d := range decisions {
		nodes := len(d.Best)
		for _, r := range d.Refused {
			nodes += r.Nodes
		}
		switch {
		case d.Node.IsZero() && (len(d.Best) > 0 || d.Reason == compute.ReasonNone):
			t.Errorf("it waits, though nodes took it: %+v", d)
		case !d.Node.IsZero() && (d.Best[0] != compute.NodeScore{Node: d.Node, Score: d.Choice.Score}):
			t.Errorf("the best is not the one that was chosen: %+v", d)
		case !d.Choice.RunnerUp.IsZero() && (d.Best[1] != compute.NodeScore{Node: d.Choice.RunnerUp, Score: d.Choice.RunnerUpScore}):
			t.Errorf("the second is not the runner-up: %+v", d)
		case nodes != 3:
			t.Errorf("%d of 3 nodes are spoken for: %+v", nodes, d)
		}
	}
}

// TestTraceEndsWithItsContext checks that a trace stops when its caller has
// gone.
func TestTraceEndsWithItsContext(t *testing.T) {
	c := newCluster(t, []string{"t4"})
	c.submit("t4")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := scheduler.Trace(ctx, c.machine.View(), 3); !errors.Is(err, context.Canceled) {
		t.Errorf("trace returns %v", err)
	}
}
