package fsm_test

import (
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// update asks for other arguments of a deployment's engine.
func (w *world) update(id compute.ExecutionID, args ...string) command.Result {
	w.Helper()
	model := *w.get(id).Inference
	model.Args = args
	return w.must(command.UpdateDeployment{Op: w.op(w.org, "update "+strings.Join(args, " ")), Actor: w.ada, Deployment: id, Model: &model})
}

// surge replaces an outdated replica, as the leader does, and reports whether there was
// one.
func (w *world) surge(id compute.ExecutionID) bool {
	w.Helper()
	return !w.must(command.SurgeService{Term: w.term, Service: id}).Repeat
}

// argsOf returns the arguments of the replica in a slot.
func (w *world) argsOf(id compute.ExecutionID, slot int) string {
	w.Helper()
	return strings.Join(w.get(w.replica(id, slot)).Inference.Args, " ")
}

// TestUpdateReplaces replaces the replicas of a deployment one after the other, each
// once another one is ready.
func TestUpdateReplaces(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	w.must(command.ScaleDeployment{Term: w.term, Deployment: id, Replicas: 2, Since: w.get(id).Deployment.ChangedAt})
	w.run(id)
	w.must(w.setReady(w.replica(id, 1), true))
	w.must(w.setReady(w.replica(id, 2), true))
	if w.surge(id) {
		t.Error("a replica is outdated")
	}
	w.update(id, "--new")
	if d := w.get(id); d.Deployment.Next == nil || len(d.Inference.Args) != 0 {
		t.Errorf("before a replica is ready it is %+v, then %+v", d.Inference, d.Deployment.Next)
	}
	for turn := range 2 {
		if !w.surge(id) || w.surge(id) {
			t.Fatal("not one replica more")
		}
		old := []compute.ExecutionID{w.replica(id, 1), w.replica(id, 2)}
		w.run(id)
		added := w.replica(id, 3)
		if w.argsOf(id, 3) != "--new" || w.get(old[0]).Stop|w.get(old[1]).Stop != compute.StopNone {
			t.Fatalf("turn %d: the third is of %q, the others are stopped", turn, w.argsOf(id, 3))
		}
		w.must(w.setReady(added, true))
		e := w.get(id)
		if e.Deployment.Next != nil || strings.Join(e.Inference.Args, "") != "--new" {
			t.Errorf("turn %d: it is not updated", turn)
		}
		gone := w.replica(id, 3)
		if w.replica(id, turn+1) != added || gone != old[turn] || w.get(gone).Stop != compute.StopGraceful {
			t.Fatalf("turn %d: %+v", turn, e.Service.Slots)
		}
		if w.surge(id) {
			t.Error("the next one is replaced while one is on its way out")
		}
		w.must(w.ended(gone, compute.StatusCancelled, time.Second))
		if n := len(w.get(id).Service.Slots); n != 2 {
			t.Errorf("there are %d slots", n)
		}
	}
	if w.surge(id) || w.argsOf(id, 1) != "--new" || w.argsOf(id, 2) != "--new" {
		t.Error("not all are replaced")
	}
	w.mustBe(id, compute.DeploymentActive, 2)
}

// TestUpdateGivenUp holds that the earlier replicas go on if the engine of an update ends
// again and again.
func TestUpdateGivenUp(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	w.run(id)
	first := w.replica(id, 1)
	w.must(w.setReady(first, true))
	w.update(id, "--bad")
	w.surge(id)
	for range 2 { // Its bound of starts.
		w.pass(time.Hour)
		w.run(id)
		w.must(w.ended(w.replica(id, 2), compute.StatusFailed, time.Second))
	}
	e := w.get(id)
	if e.Deployment.Next != nil || len(e.Inference.Args) != 0 || !strings.Contains(e.Detail, "given up") {
		t.Errorf("it is of %v, %q", e.Inference, e.Detail)
	}
	if len(e.Service.Slots) != 1 || w.replica(id, 1) != first || w.get(first).Stop != compute.StopNone || w.surge(id) {
		t.Errorf("what served does not go on: %+v", e.Service.Slots)
	}
	w.mustBe(id, compute.DeploymentActive, 1)
}

// TestUpdateWithoutReplicas updates a stopped deployment at once, and limits with it.
func TestUpdateWithoutReplicas(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	w.must(command.ChangeDeployment{Op: w.op(w.org, "stop"), Actor: w.ada, Deployment: id})
	w.update(id, "--new")
	if e := w.get(id); strings.Join(e.Inference.Args, "") != "--new" || e.Deployment.Next != nil {
		t.Errorf("it is of %v", e.Inference)
	}
	scaling := *w.get(id).Deployment
	scaling.Min, scaling.Max = 2, 3
	w.must(command.UpdateDeployment{Op: w.op(w.org, "more"), Actor: w.ada, Deployment: id, Scaling: &scaling})
	w.must(command.ChangeDeployment{Op: w.op(w.org, "start"), Actor: w.ada, Deployment: id, Start: true})
	w.mustBe(id, compute.DeploymentActive, 2)
	scaling.Min = 4
	if r := w.do(command.UpdateDeployment{Op: w.op(w.org, "bad"), Actor: w.ada, Deployment: id, Scaling: &scaling}); r.Refusal == nil {
		t.Error("limits that contradict each other pass")
	}
	other := *w.get(id).Inference
	other.Engine = "vllm"
	w.refused(command.UpdateDeployment{Actor: w.ada, Deployment: id, Model: &other}, compute.CodeInvalid, "engine")
	foreign := command.UpdateDeployment{Op: w.op(w.other.Org, "x"), Actor: w.other, Deployment: id, Scaling: &scaling}
	if r := w.do(foreign); r.Refusal == nil || r.Refusal.Code != compute.CodeNotFound {
		t.Errorf("a foreign organization: %+v", r)
	}
}

// TestDrainReplacesFirst has a replica elsewhere ready before the one on a node that is
// drained with a deadline is stopped.
func TestDrainReplacesFirst(t *testing.T) {
	w := newestWorld(t)
	id := w.service(func(e *compute.Execution) { e.Service.Replicas = 1 })
	w.run(id)
	first := w.replica(id, 1)
	w.must(w.setReady(first, true))
	if w.surge(id) {
		t.Error("a replica is replaced without reason")
	}
	w.must(command.DrainNode{Op: w.op(w.org, "drain"), Actor: w.root, Node: w.node("n3").ID, Drained: true, Within: time.Hour})
	if !w.attempt(first).PreemptAt.IsZero() || w.get(first).Stop != compute.StopNone {
		t.Fatal("a ready replica leaves before there is another one")
	}
	if !w.surge(id) {
		t.Fatal("the replica of a drained node is not replaced")
	}
	w.reconcile(id)
	second := w.replica(id, 2)
	w.place("n1", second)
	w.must(w.started(second))
	w.must(w.setReady(second, true))
	if w.replica(id, 1) != second || w.get(first).Stop != compute.StopGraceful {
		t.Errorf("%+v", w.get(id).Service.Slots)
	}
}

// TestUpdateAsksForMemory has the replicas of a larger model ask for GPUs with enough
// memory, and refuses one that fits on no node.
func TestUpdateAsksForMemory(t *testing.T) {
	w := newestWorld(t)
	w.deployment() // Its node gets the engine.
	c := w.deploymentCommand()
	c.Execution.Profile = "gpu.h100"
	id := w.must(c).Execution
	w.reconcile(id)
	model := *w.get(id).Inference
	model.Model = "a/larger"
	update := command.UpdateDeployment{Actor: w.ada, Deployment: id, Model: &model, MinVRAMMiB: 1 << 20}
	w.refused(update, compute.CodeInvalid, "never_fits")
	update.Op, update.MinVRAMMiB = w.op(w.org, "update"), 16<<10
	w.must(update)
	w.surge(id)
	w.reconcile(id)
	if e := w.get(w.replica(id, 2)); e.Request.MinVRAMMiB != 16<<10 || e.Inference.Model != "a/larger" {
		t.Errorf("the replica of %s asks for %d MiB", e.Inference.Model, e.Request.MinVRAMMiB)
	}
	if e := w.get(w.replica(id, 1)); e.Request.MinVRAMMiB != 0 {
		t.Errorf("the earlier replica asks for %d MiB", e.Request.MinVRAMMiB)
	}
}
