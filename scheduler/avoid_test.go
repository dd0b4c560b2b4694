package scheduler_test

import (
	"fmt"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// What could not be started on a node goes to another one, waits for one that
// is busy, and goes back only where no other could ever take it.
func TestPackAvoidsWhereNothingStarted(t *testing.T) {
	down := func(n *compute.Node) { n.State = compute.NodeDown }
	tests := []struct {
		name   string
		nodes  []*compute.Node
		avoid  []int
		want   string
		reason compute.Reason
	}{
		{"nothing to avoid", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1)}, nil, "[1@n1[0]]", 0},
		{"another node", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1)}, []int{1}, "[1@n2[0]]", 0},
		{"the third", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1), gpuNode(3, "t4", 1)}, []int{2, 1}, "[1@n3[0]]", 0},
		{
			"another node is busy",
			[]*compute.Node{gpuNode(1, "t4", 1), used(gpuNode(2, "t4", 1), 8, 8, 1000)},
			[]int{1},
			"[]", compute.ReasonGPUsBusy,
		},
		{"no other has such GPUs", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "h100", 1)}, []int{1}, "[1@n1[0]]", 0},
		{"the others are down", []*compute.Node{gpuNode(1, "t4", 1), edited(gpuNode(2, "t4", 1), down)}, []int{1}, "[1@n1[0]]", 0},
		{"the only node", []*compute.Node{gpuNode(1, "t4", 1)}, []int{1}, "[1@n1[0]]", 0},
		{"a node that left", []*compute.Node{gpuNode(1, "t4", 1)}, []int{9}, "[1@n1[0]]", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.nodes...)
			e := execution(1, whole("t4", 1))
			for _, n := range test.avoid {
				e.Avoid = append(e.Avoid, nodeID(n))
			}
			w.submit(e)
			plan := scheduler.Pack(w.view())
			if got := fmt.Sprint(where(w.view(), plan)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if got := len(plan.Waiting); (got > 0) != (test.reason != 0) || got > 0 && plan.Waiting[0].Reason != test.reason {
				t.Errorf("waits for %v, want %q", plan.Waiting, test.reason)
			}
		})
	}
}
