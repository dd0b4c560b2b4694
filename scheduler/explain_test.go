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
	w.limits[orgID(1)] = 7
	w.submit(execution(1, cpus(1)), execution(2, whole("t4", 2)), execution(3, whole("t4", 1)))
	got := scheduler.NewSurvey(w.view()).Explain(executionID(2))
	want := compute.Explanation{
		Index:  w.view().Index(),
		Reason: compute.ReasonScheduling, Position: 2, Queued: 3, Nodes: 6, Fits: 1,
		Refused: []compute.Refused{
			{Reason: compute.ReasonGPUsBusy, Nodes: 1},
			{Reason: compute.ReasonResourcesBusy, Nodes: 1},
			{Reason: compute.ReasonNodesDown, Nodes: 1},
			{Reason: compute.ReasonNeverFits, Nodes: 2},
		},
		Ahead: compute.Ahead{
			Demand: compute.Demand{Executions: 1}, Own: compute.Demand{Executions: 1},
			Types: []compute.TypeAhead{{Demand: compute.Demand{Executions: 1}}},
			IDs:   []compute.ExecutionID{executionID(1)},
		},
		Limit: 7,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	got = scheduler.NewSurvey(w.view()).Explain(executionID(9))
	if !reflect.DeepEqual(got, compute.Explanation{Index: w.view().Index(), Queued: 3}) {
		t.Errorf("an execution that does not wait is explained as %+v", got)
	}
}

func TestExplainSaysWhoIsAhead(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 2))
	other := execution(1, whole("t4", 2))
	other.Org = orgID(2)
	first := execution(4, share("l40s", 500))
	first.Priority = 9
	w.submit(other, execution(2, share("t4", 250)), execution(3, whole("t4", 1)), first)
	got := scheduler.NewSurvey(w.view()).Explain(executionID(3)).Ahead
	want := compute.Ahead{
		Demand: compute.Demand{Executions: 3, MilliGPU: 2750},
		Own:    compute.Demand{Executions: 2, MilliGPU: 750},
		Types: []compute.TypeAhead{
			{GPUType: "l40s", Demand: compute.Demand{Executions: 1, MilliGPU: 500}},
			{GPUType: "t4", Demand: compute.Demand{Executions: 2, MilliGPU: 2250}},
		},
		IDs: []compute.ExecutionID{executionID(4), executionID(2)},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("ahead is %+v\nwant %+v", got, want)
	}
}
