package fsm_test

import (
	"slices"
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// inContainer makes an execution one of an image.
func inContainer(e *compute.Execution) {
	e.Kind, e.Container = compute.KindDocker, &compute.Container{Images: []string{"docker.io/library/probe:latest"}}
}

// TestInventoriesAreRecordedAgain holds that the format with the faults of engines has the leader
// record all inventories again: nodes may have had faults before.
func TestInventoriesAreRecordedAgain(t *testing.T) {
	w := newWorld(t)
	if v := w.node("n3").InventoryVersion; v == 0 {
		t.Fatal("it has no inventory yet")
	}
	w.upgrade()
	if v := w.node("n3").InventoryVersion; v != 0 {
		t.Errorf("version %d of its inventory counts as recorded", v)
	}
}

// TestSilentEnginesGetNoContainers holds that a node whose engine does not answer gets no
// containers and keeps those that it has, and that others wait for its engine. Python code
// is placed there.
func TestSilentEnginesGetNoContainers(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	c := w.python("cpu")
	inContainer(&c.Execution)
	if r := w.do(c); r.Refusal == nil || r.Refusal.Detail != "no_engine" {
		t.Errorf("without an engine: %+v", r)
	}
	report := func(fault string) {
		t.Helper()
		n := w.node("n3")
		w.must(command.SetInventory{Term: w.term, Inventory: compute.Inventory{
			Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: n.GPUs,
			Offers: []compute.Offer{compute.DockerOffer(false)}, EngineFault: fault,
		}})
	}
	placed := func(id compute.ExecutionID) bool {
		t.Helper()
		plan := compute.Plan{Assignments: []compute.Assignment{w.assign(id, "n3")}}
		return w.must(command.CommitPlan{Term: w.term, Plan: plan}).Count == 1
	}
	report("")
	running := w.submit("cpu", inContainer)
	w.place("n3", running)
	w.must(w.started(running))
	report("silent")
	w.wantStatus(running, compute.StatusRunning, compute.ReasonNone)
	waiting := w.submit("cpu", inContainer)
	if !slices.Equal(w.get(waiting).Request.Needs, []compute.Offer{compute.DockerOffer(false)}) || placed(waiting) {
		t.Errorf("it is placed where the engine does not answer: %+v", w.get(waiting))
	}
	w.must(command.CommitPlan{Term: w.term, Plan: compute.Plan{
		Waiting: []compute.Waiting{{Execution: waiting, Reason: compute.ReasonEngineDown}},
	}})
	w.wantStatus(waiting, compute.StatusQueued, compute.ReasonEngineDown)
	if !placed(w.submit("cpu")) {
		t.Error("Python code waits for the engine")
	}
	f, err := restore(w.snapshot())
	if err != nil || f.View().Hash() != w.view().Hash() {
		t.Fatalf("the restored state is another one: %v", err)
	}
	if n, ok := f.View().Node(w.node("n3").ID); !ok || n.EngineFault != "silent" {
		t.Errorf("a snapshot has the node %+v", n)
	}
	report("")
	if !placed(waiting) {
		t.Error("it waits although the engine answers")
	}
}
