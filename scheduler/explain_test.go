package scheduler_test

import (
	"fmt"
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

// TestExplainNamesEngines counts the nodes that lack the engine of an execution in
// containers. The execution's reason is the engine only if no node could host it, and one
// could with the engine.
func TestExplainNamesEngines(t *testing.T) {
	offering := func(n *compute.Node, offers ...compute.Offer) *compute.Node {
		return edited(n, func(n *compute.Node) { n.Offers = offers })
	}
	var (
		none    = cpuNode(1, 8, 64)
		weak    = offering(cpuNode(2, 8, 64), compute.ComposeOffer(true), compute.DockerOffer(true))
		full    = used(offering(cpuNode(3, 8, 64), compute.DockerOffer(false), compute.DockerOffer(true)), 8, 64)
		drained = edited(offering(cpuNode(4, 8, 64), compute.DockerOffer(false), compute.DockerOffer(true)), func(n *compute.Node) { n.Drained = true })
		small   = cpuNode(5, 1, 64)
		silent  = edited(offering(cpuNode(6, 8, 64), compute.DockerOffer(false), compute.DockerOffer(true)), func(n *compute.Node) { n.EngineFault = "silent" })
		lost    = edited(offering(cpuNode(7, 8, 64), compute.DockerOffer(false)), func(n *compute.Node) { n.EngineFault, n.State = "silent", compute.NodeDown })
	)
	tests := []struct {
		name   string
		needs  []compute.Offer
		nodes  []*compute.Node
		reason compute.Reason
		want   string
	}{
		{"no engine", []compute.Offer{compute.DockerOffer(false)}, []*compute.Node{none, small}, compute.ReasonNoEngine, "[{never_fits 1} {no_engine 1}]"},
		{"no engine for a trusted one", []compute.Offer{compute.DockerOffer(true)}, []*compute.Node{none}, compute.ReasonNoEngine, "[{no_engine 1}]"},
		{"below the minimum", []compute.Offer{compute.DockerOffer(false)}, []*compute.Node{none, weak}, compute.ReasonTrustedOnly, "[{no_engine 1} {trusted_only 1}]"},
		{"Compose", []compute.Offer{compute.ComposeOffer(false)}, []*compute.Node{weak, full}, compute.ReasonTrustedOnly, "[{no_engine 1} {trusted_only 1}]"},
		{
			"beside a busy node",
			[]compute.Offer{compute.DockerOffer(false)},
			[]*compute.Node{none, weak, full},
			compute.ReasonResourcesBusy,
			"[{resources_busy 1} {no_engine 1} {trusted_only 1}]",
		},
		{
			"beside a drained node",
			[]compute.Offer{compute.DockerOffer(false)},
			[]*compute.Node{weak, drained},
			compute.ReasonNodesDown,
			"[{nodes_down 1} {trusted_only 1}]",
		},
		{"an engine that is down", []compute.Offer{compute.DockerOffer(false)}, []*compute.Node{none, weak, silent}, compute.ReasonEngineDown, "[{no_engine 1} {trusted_only 1} {engine_down 1}]"},
		{"Compose where only Docker is down", []compute.Offer{compute.ComposeOffer(false)}, []*compute.Node{silent}, compute.ReasonNoEngine, "[{no_engine 1}]"},
		{"down with its node", []compute.Offer{compute.DockerOffer(false)}, []*compute.Node{lost, silent}, compute.ReasonNodesDown, "[{nodes_down 1} {engine_down 1}]"},
		{"down beside a busy node", []compute.Offer{compute.DockerOffer(false)}, []*compute.Node{full, silent}, compute.ReasonResourcesBusy, "[{resources_busy 1} {engine_down 1}]"},
		{"all too small", []compute.Offer{compute.DockerOffer(false)}, []*compute.Node{small}, compute.ReasonNeverFits, "[{never_fits 1}]"},
		{
			"a volume and an engine",
			[]compute.Offer{compute.DockerOffer(false), compute.VolumeOffer("sets")},
			[]*compute.Node{none, weak},
			compute.ReasonNeverFits, "[{never_fits 2}]",
		},
		{"a volume", []compute.Offer{compute.VolumeOffer("sets")}, []*compute.Node{none, weak}, compute.ReasonNeverFits, "[{never_fits 2}]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.nodes...)
			e := execution(1, cpus(2))
			e.Request.Needs = test.needs
			w.submit(e)
			w.commit(scheduler.Pack(w.view()))
			recorded := w.reasons()[1]
			if wants := test.reason; recorded != wants && (recorded != compute.ReasonNeverFits || wants < compute.ReasonNoEngine) {
				t.Errorf("recorded is %v", recorded)
			}
			got := scheduler.NewSurvey(w.view()).Explain(executionID(1))
			if got.Reason != test.reason || fmt.Sprint(got.Refused) != test.want || got.Nodes != len(test.nodes) || got.Fits > 0 {
				t.Errorf("got %+v, want %v and %s", got, test.reason, test.want)
			}
		})
	}
}

// TestPackAvoidsSilentEngines places an execution in containers on a node only while its engine
// answers, and Python code at any time.
func TestPackAvoidsSilentEngines(t *testing.T) {
	needs := []compute.Offer{compute.DockerOffer(false)}
	w := newWorld(t, edited(cpuNode(1, 8, 64), func(n *compute.Node) { n.Offers = needs }))
	p := scheduler.NewPacker()
	submit := func(number int, needs []compute.Offer) {
		e := execution(number, cpus(1))
		e.Request.Needs = needs
		w.submit(e)
	}
	for round, fault := range []string{"", "silent", "silent since then", ""} {
		record := *w.nodes[0]
		w.setNode(edited(&record, func(n *compute.Node) { n.EngineFault = fault }))
		submit(2*round+1, needs)
		submit(2*round+2, nil)
		w.commit(p.Pack(w.view()))
		for number, why := range w.reasons() {
			if number%2 == 0 || fault == "" || why != compute.ReasonEngineDown {
				t.Errorf("fault %q: %d waits for %v", fault, number, why)
			}
		}
	}
	if len(w.live) != 8 {
		t.Errorf("%d executions were placed", len(w.live))
	}
}

// TestPackTellsSilentEnginesApart places executions in containers on the one of two idle nodes
// whose engine answers. Nothing else tells the nodes apart.
func TestPackTellsSilentEnginesApart(t *testing.T) {
	needs := []compute.Offer{compute.DockerOffer(false)}
	w, p := newWorld(t), scheduler.NewPacker()
	for round := range 4 {
		for number := 1; number <= 2; number++ {
			w.setNode(edited(cpuNode(number, 8, 64), func(n *compute.Node) {
				if n.Offers = needs; number == 1+round%2 {
					n.EngineFault = "silent"
				}
			}))
		}
		e := execution(round+1, cpus(1))
		e.Request.Needs = needs
		w.submit(e)
		w.commit(p.Pack(w.view()))
		if a := w.live[e.ID]; a.Node != nodeID(2-round%2) {
			t.Errorf("round %d: it is placed by %+v", round, a)
		}
		delete(w.live, e.ID)
	}
}

// TestTraceNamesEngines holds that a replay counts the nodes without an engine as such.
func TestTraceNamesEngines(t *testing.T) {
	weak := edited(cpuNode(2, 8, 64), func(n *compute.Node) { n.Offers = []compute.Offer{compute.DockerOffer(true)} })
	good := edited(cpuNode(3, 8, 64), func(n *compute.Node) { n.Offers = []compute.Offer{compute.DockerOffer(false)} })
	w := newWorld(t, cpuNode(1, 8, 64), weak, good)
	e := execution(1, cpus(2))
	e.Request.Needs = []compute.Offer{compute.DockerOffer(false)}
	w.submit(e)
	_, decisions, err := scheduler.Trace(t.Context(), w.view(), 1)
	if err != nil || len(decisions) != 1 || decisions[0].Node != nodeID(3) || fmt.Sprint(decisions[0].Refused) != "[{no_engine 1} {trusted_only 1}]" {
		t.Errorf("got %+v, %v", decisions, err)
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
