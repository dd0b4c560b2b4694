package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

func TestPlanIsCheckedAgain(t *testing.T) {
	one := compute.WholeGPU
	tests := []struct {
		name   string
		before func(*world)
		change func(*world, *compute.Assignment)
	}{
		{"unknown execution", nil, func(w *world, a *compute.Assignment) { a.Execution = w.executionID() }},
		{"unknown node", nil, func(w *world, a *compute.Assignment) { a.Node.UUID = w.uuid() }},
		{"node down", func(w *world) {
			w.must(command.SetNodeState{Term: 1, Node: w.node("n3").ID, State: compute.NodeDown})
		}, nil},
		{"node drained", func(w *world) {
			w.must(command.DrainNode{Actor: w.root, Node: w.node("n3").ID, Drained: true})
		}, nil},
		{"node without the GPU", nil, func(w *world, a *compute.Assignment) { a.Node = w.node("n2").ID }},
		{"GPU of another type", nil, func(w *world, a *compute.Assignment) {
			a.Node = w.node("n2").ID
			a.GPUs = []compute.GPUShare{{GPU: "SIM-n2-0", Milli: one}, {GPU: "SIM-n2-1", Milli: one}}
		}},
		{"unknown GPU", nil, func(_ *world, a *compute.Assignment) { a.GPUs[0].GPU = "SIM-n3-9" }},
		{"GPU twice", nil, func(_ *world, a *compute.Assignment) { a.GPUs[1] = a.GPUs[0] }},
		{"too few GPUs", nil, func(_ *world, a *compute.Assignment) { a.GPUs = a.GPUs[:1] }},
		{"no GPUs", nil, func(_ *world, a *compute.Assignment) { a.GPUs = nil }},
		{"too many GPUs", nil, func(_ *world, a *compute.Assignment) {
			a.GPUs = append(a.GPUs, compute.GPUShare{GPU: "SIM-n3-3", Milli: one})
		}},
		{"half a GPU", nil, func(_ *world, a *compute.Assignment) { a.GPUs[1].Milli = 500 }},
		{
			"GPU taken", func(w *world) { w.place("n3", w.submit("t4.500m")) },
			func(_ *world, a *compute.Assignment) { a.GPUs[0].GPU = "SIM-n3-0" },
		},
		{"GPU failed", func(w *world) {
			inv := inventory(w.node("n3").ID, "n3", 2, "t4", "t4", "t4", "t4")
			inv.GPUs[0].Health = compute.HealthFailed
			w.must(command.SetInventory{Term: 1, Inventory: inv})
		}, func(_ *world, a *compute.Assignment) { a.GPUs[0].GPU = "SIM-n3-0" }},
		{"vCPUs taken", func(w *world) { w.place("n3", w.submit("cpu.17x")) }, nil},
		{"memory taken", func(w *world) {
			inv := inventory(w.node("n3").ID, "n3", 2, "t4", "t4", "t4", "t4")
			inv.MemoryMiB = 128<<10 - 1
			w.must(command.SetInventory{Term: 1, Inventory: inv})
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			id := w.submit("t4.2x")
			a := w.assign(id, "n3")
			if test.before != nil {
				test.before(w)
			}
			if test.change != nil {
				test.change(w, &a)
			}
			plan := command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{a}}}
			if r := w.must(plan); r.Count != 0 {
				t.Error("it was placed")
			}
			w.wantStatus(id, compute.StatusQueued, compute.ReasonScheduling)
			if len(w.view().Attempts(id)) != 0 {
				t.Error("there is an attempt")
			}
		})
	}
}

// TestSubmitExpectsWhatOthersWaitFor has new executions wait as the oldest one of their line that asks
// for the same, so that no second write says so.
func TestSubmitExpectsWhatOthersWaitFor(t *testing.T) {
	w := newestWorld(t)
	oldest := w.submit("t4.2x")
	wait := func(why compute.Reason) {
		w.must(command.CommitPlan{Term: 1, Plan: compute.Plan{Waiting: []compute.Waiting{{Execution: oldest, Reason: why}}}})
	}
	for _, c := range []struct {
		waits, want compute.Reason
		profile     string
	}{
		{compute.ReasonScheduling, compute.ReasonScheduling, "t4.2x"},
		{compute.ReasonGPUsBusy, compute.ReasonGPUsBusy, "t4.2x"},
		{compute.ReasonGPUsBusy, compute.ReasonScheduling, "t4"},
		{compute.ReasonResourcesBusy, compute.ReasonResourcesBusy, "t4.2x"},
		{compute.ReasonNodesDown, compute.ReasonNodesDown, "t4.2x"},
		{compute.ReasonNeverFits, compute.ReasonScheduling, "t4.2x"},      // It alarms, and may be past.
		{compute.ReasonOrgConcurrency, compute.ReasonScheduling, "t4.2x"}, // Each is decided by what runs.
		{compute.ReasonRetry, compute.ReasonScheduling, "t4.2x"},          // That is its own.
	} {
		wait(c.waits)
		w.wantStatus(w.submit(c.profile), compute.StatusQueued, c.want)
	}
	wait(compute.ReasonGPUsBusy)
	urgent := w.submit("t4.2x", func(e *compute.Execution) { e.Priority = 1 })
	w.wantStatus(urgent, compute.StatusQueued, compute.ReasonScheduling)

	w = newWorld(t) // Older servers would not do it.
	oldest = w.submit("t4.2x")
	wait(compute.ReasonGPUsBusy)
	w.wantStatus(w.submit("t4.2x"), compute.StatusQueued, compute.ReasonScheduling)
}

func TestPlanPlacesAndExplains(t *testing.T) {
	w := newWorld(t)
	placed, waiting, ended := w.submit("t4.2x"), w.submit("t4.2x"), w.submit("t4")
	w.must(command.StopExecution{Actor: w.ada, Execution: ended, Stop: compute.StopHard})
	plan := command.CommitPlan{Term: 1, Plan: compute.Plan{
		Assignments: []compute.Assignment{w.assign(placed, "n3")},
		Waiting: []compute.Waiting{
			{Execution: waiting, Reason: compute.ReasonGPUsBusy},
			{Execution: ended, Reason: compute.ReasonGPUsBusy},
			{Execution: placed, Reason: compute.ReasonGPUsBusy},
			{Execution: waiting, Reason: compute.ReasonExitCode}, // Not a reason to wait.
		},
	}}
	if r := w.must(plan); r.Count != 1 {
		t.Fatalf("placed %d", r.Count)
	}
	w.wantStatus(placed, compute.StatusStarting, compute.ReasonNone)
	w.wantStatus(waiting, compute.StatusQueued, compute.ReasonGPUsBusy)
	w.wantStatus(ended, compute.StatusAborted, compute.ReasonAborted)
	a := w.attempt(placed)
	if a.Epoch != 1 || w.get(placed).Epoch != 1 || a.PlacedAt != w.now || len(a.GPUs) != 2 {
		t.Errorf("attempt is %+v", a)
	}
	if r := w.must(plan); r.Count != 0 {
		t.Error("it was placed twice")
	}
}

func TestSharesAddUpToOneGPU(t *testing.T) {
	w := newEmptyWorld(t)
	w.bootstrap(settings())
	w.addNode("n1", "t4")
	w.ada = w.addUser("ada")
	w.org = w.ada.Org
	share := []compute.GPUShare{{GPU: "SIM-n1-0", Milli: 300}}
	var plan compute.Plan
	for range 4 {
		plan.Assignments = append(plan.Assignments, compute.Assignment{
			Execution: w.submit("t4.300m"), Node: w.node("n1").ID, GPUs: share,
		})
	}
	if r := w.must(command.CommitPlan{Term: 1, Plan: plan}); r.Count != 3 {
		t.Fatalf("placed %d shares of 300 on one GPU, want 3", r.Count)
	}
	if used := w.node("n1").GPUs[0].UsedMilli; used != 900 {
		t.Errorf("GPU has given %d", used)
	}
}

func TestOlderTermsAreFenced(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	w.place("n3", id)
	w.term = 5
	w.must(command.Tick{Term: 5})
	node := w.node("n3").ID
	for _, cmd := range []command.Command{
		command.SetSettings{Term: 4},
		command.SetInventory{Term: 4, Inventory: inventory(node, "n3", 9)},
		command.SetNodeState{Term: 4, Node: node, State: compute.NodeDown},
		command.TakeSelection{Term: 4, Parent: id},
		command.CommitPlan{Term: 4},
		command.LoseAttempts{Term: 4, Node: node, Attempts: []command.AttemptRef{{Execution: id, Epoch: 1}}},
		command.AddSigningKey{Term: 4, Key: compute.SigningKey{ID: "x"}},
		command.Tick{Term: 4},
	} {
		w.refused(cmd, compute.CodeConflict, "stale_term")
	}
	w.term = 4 // An older leader's clock does not bring its term back.
	w.now = w.now.Add(time.Second)
	w.refused(command.Tick{Term: 4}, compute.CodeConflict, "stale_term")
	if w.view().Term() != 5 {
		t.Errorf("term is %d", w.view().Term())
	}
}
