package scheduler_test

import (
	"reflect"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

func TestExplainCountsNodesByReason(t *testing.T) {
	w := newWorld(t,
		cpuNode(1, 64, 512),
		edited(gpuNode(2, "t4", 2), func(n *compute.Node) { n.Drained = true }),
		used(gpuNode(3, "t4", 2), 8, 64, 1000),
		used(gpuNode(4, "t4", 2), 9, 64),
		gpuNode(5, "t4", 1),
		gpuNode(6, "t4", 2),
	)
	w.submit(execution(1, cpus(1)), execution(2, whole("t4", 2)))
	got := scheduler.Explain(w.view(), executionID(2))
	want := scheduler.Explanation{
		Reason: compute.ReasonScheduling, Position: 2, Nodes: 6, Fits: 1,
		Refused: []scheduler.Refused{
			{Reason: compute.ReasonGPUsBusy, Nodes: 1},
			{Reason: compute.ReasonResourcesBusy, Nodes: 1},
			{Reason: compute.ReasonNodesDown, Nodes: 1},
			{Reason: compute.ReasonNeverFits, Nodes: 2},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if got := scheduler.Explain(w.view(), executionID(9)); !reflect.DeepEqual(got, scheduler.Explanation{}) {
		t.Errorf("an execution that does not wait is explained as %+v", got)
	}
}
