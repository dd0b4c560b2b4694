package scheduler_test

import (
	"fmt"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// used returns n with something given away: milli of each GPU in turn.
func used(n *compute.Node, vcpu, memoryGiB int, milli ...int) *compute.Node {
	n.UsedVCPUMilli, n.UsedMemoryMiB = int64(vcpu)*1000, int64(memoryGiB)<<10
	for i, m := range milli {
		n.GPUs[i].UsedMilli = m
	}
	return n
}

// edited returns n after edit.
func edited(n *compute.Node, edit func(n *compute.Node)) *compute.Node {
	edit(n)
	return n
}

// where describes a plan: "3@n1[0 1]" is execution 3 on node n1, GPUs 0 and 1.
func where(v *fakeView, plan compute.Plan) []string {
	var out []string
	for _, a := range plan.Assignments {
		text := ""
		for _, n := range v.nodes {
			if n.ID != a.Node {
				continue
			}
			text = fmt.Sprintf("%d@%s", a.Execution.UUID[15], n.Name)
			if len(a.GPUs) > 0 {
				var gpus []int
				for _, s := range a.GPUs {
					for _, g := range n.GPUs {
						if g.ID == s.GPU {
							gpus = append(gpus, g.Index)
						}
					}
				}
				text += fmt.Sprint(gpus)
			}
		}
		out = append(out, text)
	}
	return out
}

func TestPackPlaces(t *testing.T) {
	mig := func(n *compute.Node) { n.GPUs[0].MIG = "enabled"; n.GPUs[1].MIG = "1g_5gb" }
	failed := func(n *compute.Node) { n.GPUs[0].Health = compute.HealthFailed }
	islands := func(n *compute.Node) {
		for i := range n.GPUs {
			n.GPUs[i].Island = 1 + i/2
		}
	}
	tests := []struct {
		name  string
		nodes []*compute.Node
		queue []compute.Request
		want  string
	}{
		{"nothing to do", []*compute.Node{gpuNode(1, "t4", 1)}, nil, "[]"},
		{"no nodes", nil, []compute.Request{cpus(1)}, "[]"},
		{
			"only the type",
			[]*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "h100", 1)},
			[]compute.Request{whole("h100", 1)},
			"[1@n2[0]]",
		},
		{
			"first node of equals",
			[]*compute.Node{gpuNode(1, "t4", 2), gpuNode(2, "t4", 2)},
			[]compute.Request{whole("t4", 1)},
			"[1@n1[0]]",
		},
		{
			"tightest node",
			[]*compute.Node{gpuNode(1, "t4", 4), used(gpuNode(2, "t4", 4), 24, 192, 1000, 1000, 1000)},
			[]compute.Request{whole("t4", 1)},
			"[1@n2[3]]",
		},
		{
			"tightest GPU",
			[]*compute.Node{used(gpuNode(1, "t4", 3), 8, 8, 0, 500, 400)},
			[]compute.Request{share("t4", 500)},
			"[1@n1[1]]",
		},
		{
			"shares add up on one GPU",
			[]*compute.Node{gpuNode(1, "t4", 2)},
			[]compute.Request{share("t4", 500), share("t4", 600), share("t4", 500)},
			"[1@n1[0] 2@n1[1] 3@n1[0]]",
		},
		{
			"several GPUs on one node or not at all",
			[]*compute.Node{used(gpuNode(1, "t4", 2), 8, 64, 1000), used(gpuNode(2, "t4", 2), 8, 64, 1000)},
			[]compute.Request{whole("t4", 2)},
			"[]",
		},
		{
			"several GPUs",
			[]*compute.Node{used(gpuNode(1, "t4", 4), 8, 64, 1000), gpuNode(2, "t4", 8)},
			[]compute.Request{whole("t4", 4)},
			"[1@n2[0 1 2 3]]",
		},
		{
			"CPU-only work leaves GPU nodes alone",
			[]*compute.Node{gpuNode(1, "t4", 4), cpuNode(2, 64, 256)},
			[]compute.Request{cpus(1)},
			"[1@n2]",
		},
		{
			"CPU-only work strands no GPU",
			[]*compute.Node{gpuNode(1, "t4", 1), used(gpuNode(2, "t4", 4), 8, 64, 1000, 500)},
			[]compute.Request{cpus(2)},
			"[1@n2]",
		},
		{
			"failed GPU",
			[]*compute.Node{edited(gpuNode(1, "t4", 2), failed)},
			[]compute.Request{whole("t4", 1), whole("t4", 1)},
			"[1@n1[1]]",
		},
		{
			"drained node",
			[]*compute.Node{edited(gpuNode(1, "t4", 1), func(n *compute.Node) { n.Drained = true }), gpuNode(2, "t4", 1)},
			[]compute.Request{whole("t4", 1)},
			"[1@n2[0]]",
		},
		{
			"node that is down",
			[]*compute.Node{edited(gpuNode(1, "t4", 1), func(n *compute.Node) { n.State = compute.NodeDown }), gpuNode(2, "t4", 1)},
			[]compute.Request{whole("t4", 1)},
			"[1@n2[0]]",
		},
		{
			"GPUs in MIG mode take slices only",
			[]*compute.Node{edited(gpuNode(1, "a100", 2), mig)},
			[]compute.Request{whole("a100", 1), {GPUType: "a100", GPUs: 1, MilliGPU: 1000, MIG: "1g_5gb"}},
			"[2@n1[1]]",
		},
		{
			"any type will do",
			[]*compute.Node{used(gpuNode(1, "t4", 1), 8, 64, 1000), gpuNode(2, "h100", 1)},
			[]compute.Request{{GPUs: 1, MilliGPU: 1000, VCPUMilli: 1000, MemoryMiB: 1024}},
			"[1@n2[0]]",
		},
		{
			"one of two types will do",
			[]*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "h100", 1), gpuNode(3, "a100", 1)},
			[]compute.Request{
				{GPUs: 1, MilliGPU: 1000, VCPUMilli: 1000, AnyOf: []string{"a100", "h100"}},
				{GPUs: 1, MilliGPU: 1000, VCPUMilli: 1000, AnyOf: []string{"a100", "h100"}},
				{GPUs: 1, MilliGPU: 1000, VCPUMilli: 1000, AnyOf: []string{"a100", "h100"}},
			},
			"[1@n2[0] 2@n3[0]]",
		},
		{
			"of several types the preferred one that is free, then the next",
			[]*compute.Node{gpuNode(1, "h100", 1), gpuNode(2, "t4", 1), gpuNode(3, "a100", 1)},
			[]compute.Request{ranked(1, 1000), ranked(1, 1000), ranked(1, 1000)},
			"[1@n2[0] 2@n1[0]]",
		},
		{
			"the preferred type of one node, whatever its order",
			[]*compute.Node{edited(gpuNode(1, "t4", 4), func(n *compute.Node) { n.GPUs[0].Type, n.GPUs[1].Type = "h100", "h100" })},
			[]compute.Request{ranked(2, 1000), ranked(2, 1000)},
			"[1@n1[2 3] 2@n1[0 1]]",
		},
		{
			"a share of the preferred type, although another GPU is shared already",
			[]*compute.Node{edited(used(gpuNode(1, "t4", 2), 1, 1, 500), func(n *compute.Node) { n.GPUs[0].Type = "h100" })},
			[]compute.Request{ranked(1, 500), ranked(1, 500), ranked(1, 500)},
			"[1@n1[1] 2@n1[1] 3@n1[0]]",
		},
		{
			"the preferred type before devices on one island",
			[]*compute.Node{
				gpuNode(1, "h100", 4), edited(used(gpuNode(2, "t4", 4), 16, 128, 1000, 0, 1000), islands),
			},
			[]compute.Request{ranked(2, 1000), ranked(2, 1000)},
			"[1@n2[1 3] 2@n1[0 1]]",
		},
		{
			"several GPUs are of one type",
			[]*compute.Node{edited(gpuNode(1, "t4", 3), func(n *compute.Node) { n.GPUs[0].Type = "h100" })},
			[]compute.Request{{GPUs: 2, MilliGPU: 1000, VCPUMilli: 1000}, {GPUs: 2, MilliGPU: 1000, VCPUMilli: 1000}},
			"[1@n1[1 2]]",
		},
		{
			"several GPUs come from one island",
			[]*compute.Node{edited(used(gpuNode(1, "t4", 4), 8, 64, 1000), islands)},
			[]compute.Request{whole("t4", 2)},
			"[1@n1[2 3]]",
		},
		{
			"one GPU comes from the island that has the fewest free",
			[]*compute.Node{edited(used(gpuNode(1, "t4", 4), 8, 64, 0, 0, 1000), islands)},
			[]compute.Request{whole("t4", 1)},
			"[1@n1[3]]",
		},
		{
			"a node with an island that is large enough goes first",
			[]*compute.Node{
				edited(used(gpuNode(1, "t4", 4), 16, 128, 1000, 0, 1000), islands),
				edited(gpuNode(2, "t4", 4), islands),
			},
			[]compute.Request{whole("t4", 2), whole("t4", 2), whole("t4", 2)},
			"[1@n2[0 1] 2@n2[2 3] 3@n1[1 3]]",
		},
		{
			"vCPU is the limit",
			[]*compute.Node{used(gpuNode(1, "t4", 2), 9, 0)},
			[]compute.Request{whole("t4", 1)},
			"[]",
		},
		{
			"memory is the limit",
			[]*compute.Node{used(gpuNode(1, "t4", 2), 0, 65), used(gpuNode(2, "t4", 2), 0, 64)},
			[]compute.Request{whole("t4", 1)},
			"[1@n2[0]]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.nodes...)
			for i, r := range tt.queue {
				w.submit(execution(i+1, r))
			}
			v := w.view()
			plan := scheduler.Pack(v)
			if got := fmt.Sprint(where(v, plan)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			w.commit(plan)
		})
	}
}

func TestPackSaysWhyItWaits(t *testing.T) {
	down := func(n *compute.Node) { n.State = compute.NodeDown }
	failed := func(n *compute.Node) { n.GPUs[0].Health = compute.HealthFailed }
	missing := func(n *compute.Node) { n.GPUs[0].Health = compute.HealthMissing }
	tests := []struct {
		name  string
		nodes []*compute.Node
		ask   compute.Request
		want  compute.Reason
	}{
		{"no nodes", nil, cpus(1), compute.ReasonNeverFits},
		{"unknown type", []*compute.Node{gpuNode(1, "t4", 1)}, whole("h100", 1), compute.ReasonNeverFits},
		{"too many GPUs", []*compute.Node{gpuNode(1, "t4", 1), gpuNode(2, "t4", 1)}, whole("t4", 2), compute.ReasonNeverFits},
		{"too much vCPU", []*compute.Node{cpuNode(1, 4, 64)}, cpus(5), compute.ReasonNeverFits},
		{"GPU gone for good", []*compute.Node{edited(gpuNode(1, "t4", 1), missing)}, whole("t4", 1), compute.ReasonNeverFits},
		{"GPUs busy", []*compute.Node{used(gpuNode(1, "t4", 1), 8, 64, 1000)}, whole("t4", 1), compute.ReasonGPUsBusy},
		{"share busy", []*compute.Node{used(gpuNode(1, "t4", 1), 1, 1, 600)}, share("t4", 500), compute.ReasonGPUsBusy},
		{"vCPU busy beside a free GPU", []*compute.Node{used(gpuNode(1, "t4", 2), 12, 1, 1000)}, whole("t4", 1), compute.ReasonResourcesBusy},
		{"memory busy", []*compute.Node{used(cpuNode(1, 64, 64), 1, 64)}, cpus(1), compute.ReasonResourcesBusy},
		{"node down", []*compute.Node{edited(gpuNode(1, "t4", 1), down)}, whole("t4", 1), compute.ReasonNodesDown},
		{"GPU failed", []*compute.Node{edited(gpuNode(1, "t4", 1), failed)}, whole("t4", 1), compute.ReasonNodesDown},
		{
			"one down, one busy",
			[]*compute.Node{edited(gpuNode(1, "t4", 1), down), used(gpuNode(2, "t4", 1), 8, 64, 1000)},
			whole("t4", 1), compute.ReasonGPUsBusy,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.nodes...)
			w.submit(execution(1, tt.ask))
			if n := w.pack(); n != 0 {
				t.Fatalf("%d placed, want none", n)
			}
			if got := w.reasons()[1]; got != tt.want {
				t.Errorf("reason %v, want %v", got, tt.want)
			}
			if plan := scheduler.Pack(w.view()); !plan.Empty() {
				t.Errorf("a reason that is known is said again: %+v", plan)
			}
			explained := scheduler.NewSurvey(w.view()).Explain(executionID(1))
			if explained.Position != 1 || explained.Fits != 0 || explained.Reason != tt.want {
				t.Errorf("explained as %+v", explained)
			}
		})
	}
}

func TestPackKeepsTheConcurrencyOfOrganizations(t *testing.T) {
	w := newWorld(t, cpuNode(1, 64, 256))
	w.limits[orgID(1)] = 2
	for i := range 4 {
		w.submit(execution(i+1, cpus(1)))
	}
	other := execution(5, cpus(1))
	other.Org = orgID(2)
	w.submit(other)
	if n := w.pack(); n != 3 {
		t.Fatalf("%d placed, want 2 of the first organization and 1 of the second", n)
	}
	want := map[int]compute.Reason{3: compute.ReasonOrgConcurrency, 4: compute.ReasonOrgConcurrency}
	if got := w.reasons(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("reasons %v, want %v", got, want)
	}
	w.finish(executionID(1))
	if n := w.pack(); n != 1 || w.reasons()[3] != compute.ReasonNone {
		t.Errorf("%d placed after one ended, want the oldest", n)
	}
}

func TestPackGoesByPriorityThenAge(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 1))
	urgent := execution(3, whole("t4", 1))
	urgent.Priority = 7
	w.submit(execution(1, whole("t4", 1)), execution(2, whole("t4", 1)), urgent)
	for _, want := range []int{3, 1, 2} {
		w.pack()
		if _, placed := w.live[executionID(want)]; !placed {
			t.Fatalf("execution %d was not next; live: %v", want, w.live)
		}
		w.finish(executionID(want))
	}
}

// TestPlanHasSoManyGPUs holds that a plan of large requests ends before it is
// too large to commit, says so, and that the next one continues.
func TestPlanHasSoManyGPUs(t *testing.T) {
	var nodes []*compute.Node
	var es []*compute.Execution
	const requests = scheduler.MaxShares/8 + 5
	for i := range requests {
		nodes = append(nodes, gpuNode(i+1, "t4", 8))
		es = append(es, execution(i+1, whole("t4", 8)))
	}
	w := newWorld(t, nodes...)
	w.submit(es...)
	plan := scheduler.Pack(w.view())
	if len(plan.Assignments) != scheduler.MaxShares/8 || !scheduler.Full(plan) {
		t.Errorf("%d assignments of 8 GPUs, full is %v", len(plan.Assignments), scheduler.Full(plan))
	}
	if n := w.pack(); n != requests {
		t.Errorf("%d placed in all, want %d", n, requests)
	}
	if scheduler.Full(compute.Plan{}) {
		t.Error("an empty plan is full")
	}
}

func TestPackIsBounded(t *testing.T) {
	w := newWorld(t, cpuNode(1, 2000, 8192), edited(gpuNode(2, "t4", 1), func(n *compute.Node) { n.Drained = true }))
	var es []*compute.Execution
	for i := range scheduler.MaxWaiting + 10 {
		es = append(es, execution(i+1, whole("t4", 1)))
	}
	w.submit(es...)
	if plan := scheduler.Pack(w.view()); len(plan.Waiting) != scheduler.MaxWaiting {
		t.Errorf("%d reasons in one plan, want %d", len(plan.Waiting), scheduler.MaxWaiting)
	}
	es = nil
	for i := range scheduler.MaxAssignments + 10 {
		es = append(es, execution(10_000+i, cpus(1)))
	}
	w.submit(es...)
	if plan := scheduler.Pack(w.view()); len(plan.Assignments) != scheduler.MaxAssignments {
		t.Errorf("%d assignments in one plan, want %d", len(plan.Assignments), scheduler.MaxAssignments)
	}
	if n := w.pack(); n != scheduler.MaxAssignments+10 {
		t.Errorf("%d placed in all, want %d", n, scheduler.MaxAssignments+10)
	}
}

// ranked returns a request for shares of t4s, or else of h100s.
func ranked(gpus, milli int) compute.Request {
	return compute.Request{GPUs: gpus, MilliGPU: milli, VCPUMilli: 1000, AnyOf: []string{"t4", "h100"}, Ranked: true}
}

func TestAPreferenceMakesNoSecondHead(t *testing.T) {
	for _, order := range [][]string{{"h100", "t4"}, {"t4", "h100"}} {
		near, far := gpuNode(1, "t4", 2), gpuNode(2, "t4", 2)
		near.GPUs[0].UsedMilli, far.GPUs[0].UsedMilli = 500, 600
		w := newWorld(t, near, far)
		head := compute.Request{GPUs: 2, MilliGPU: compute.WholeGPU, VCPUMilli: 1000, AnyOf: []string{"h100", "t4"}}
		second := head
		second.AnyOf, second.Ranked = order, true
		w.submit(execution(1, head), execution(2, second), execution(3, share("t4", 700)))
		plan := scheduler.Pack(w.view())
		if len(plan.Assignments) != 1 || plan.Assignments[0].Execution != executionID(3) || plan.Assignments[0].Node != far.ID {
			t.Errorf("preference %v: %+v, want 3 on the node beside that of the head", order, plan.Assignments)
		}
	}
}
