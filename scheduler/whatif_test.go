package scheduler_test

import (
	"reflect"
	"slices"
	"testing"

	"berth/compute"
	"berth/fsm"
	"berth/scheduler"
)

// TestTraceIsPack holds that watching a plan does not change it, and that what
// is said of the winner is in the plan.
func TestTraceIsPack(t *testing.T) {
	c := newCluster(t, []string{"h100", "h100"}, []string{"h100", "h100"}, []string{"t4"})
	for _, profile := range []string{"h100.2x", "h100", "h100.500m", "t4", "h100.2x", "t4"} {
		c.submit(profile)
	}
	v := c.machine.View()
	plan, decisions := scheduler.Trace(v, 2)
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

// TestWhatIf holds what other nodes would mean for a queue.
func TestWhatIf(t *testing.T) {
	c := newCluster(t, []string{"h100", "h100"}, []string{"t4"})
	var all []compute.ExecutionID
	for _, profile := range []string{"h100.2x", "h100.2x", "h100", "t4"} {
		all = append(all, c.submit(profile))
	}
	c.pack()
	v := c.machine.View()
	nodes := slices.Collect(v.Nodes())
	more := compute.Node{ID: compute.NodeID{UUID: compute.UUID{0xff}}, VCPUMilli: 32000, MemoryMiB: 256 << 10}
	for i := range 4 {
		more.GPUs = append(more.GPUs, compute.GPU{ID: compute.GPUID("new-" + string(rune('0'+i))), Type: "h100", Index: i})
	}
	tests := []struct {
		name                string
		change              compute.WhatIf
		starts, waits, lost int
		placed              compute.NodeID
	}{
		{"nothing", compute.WhatIf{}, 0, 2, 0, compute.NodeID{}},
		{"more", compute.WhatIf{Add: []compute.Node{more}}, 2, 0, 0, more.ID},
		{"drained", compute.WhatIf{Add: []compute.Node{more}, Drain: []compute.NodeID{nodes[0].ID, nodes[1].ID}}, 2, 0, 0, more.ID},
		{"less", compute.WhatIf{Remove: []compute.NodeID{nodes[0].ID}}, 0, 2, 1, compute.NodeID{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := scheduler.WhatIf(v, tt.change)
			if len(got.Starts) != tt.starts || len(got.Waiting) != tt.waits || got.Lost != tt.lost || got.Now != 0 {
				t.Errorf("got %+v", got)
			}
			for _, a := range got.Starts {
				if a.Node != tt.placed {
					t.Errorf("%s would start on %s", a.Execution, a.Node)
				}
			}
			if tt.name == "less" && got.Waiting[0].Reason != compute.ReasonNeverFits {
				t.Errorf("without its node it waits for %v", got.Waiting[0].Reason)
			}
		})
	}
	c.must(fsm.Tick{Term: 1}) // The view of the question was not touched.
	if e := c.get(all[1]); e.Status != compute.StatusQueued || e.Reason != compute.ReasonGPUsBusy {
		t.Errorf("after the questions it is %v, %v", e.Status, e.Reason)
	}
}
