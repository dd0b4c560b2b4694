package fsm_test

import (
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// deploymentCommand creates a deployment of 1 to 3 replicas that fails after two starts.
func (w *world) deploymentCommand() command.Submit {
	w.Helper()
	c := w.python("cpu")
	e := &c.Execution
	e.Kind, e.Timeout = compute.KindService, 0
	e.Serving = &compute.Serving{Port: 8000, HealthPath: "/health", ReadinessTimeout: time.Minute}
	e.Service = &compute.Service{
		Replicas: 2, BackoffFirst: 10 * time.Second, BackoffMost: 40 * time.Second, BackoffReset: 10 * time.Minute,
	}
	e.Inference = &compute.Inference{Engine: "echo", Model: "a/b"}
	e.Deployment = &compute.Deployment{
		Min: 1, Max: 3, TargetMilliRPS: 1000, TargetP95: time.Second, Window: time.Minute, Starts: 2,
	}
	return c
}

// deployment creates the deployment of deploymentCommand. Node n3 has its engine.
func (w *world) deployment() compute.ExecutionID {
	w.Helper()
	w.offerEcho()
	return w.must(w.deploymentCommand()).Execution
}

// offerEcho has node n3 offer the engine of deploymentCommand.
func (w *world) offerEcho() {
	w.Helper()
	n := w.node("n3")
	w.must(command.SetInventory{Term: w.term, Inventory: compute.Inventory{
		Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB, GPUs: n.GPUs,
		Offers: []compute.Offer{compute.InferenceOffer("echo")},
	}})
}

// deployed returns the wanted state of a deployment, and how many replicas it has.
func (w *world) deployed(id compute.ExecutionID) (compute.DeploymentState, int) {
	w.Helper()
	e := w.get(id)
	return e.Deployment.State, e.Service.Replicas
}

// mustBe fails the test unless a deployment is in a state with so many replicas.
func (w *world) mustBe(id compute.ExecutionID, state compute.DeploymentState, replicas int) {
	w.Helper()
	if s, n := w.deployed(id); s != state || n != replicas {
		w.Fatalf("the deployment is %s with %d replicas, want %s with %d", s, n, state, replicas)
	}
}

// TestDeploymentScales scales a deployment between its limits, pauses and resumes it.
func TestDeploymentScales(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	w.mustBe(id, compute.DeploymentActive, 1) // Not the two of the service.
	w.run(id)
	if e := w.get(w.replica(id, 1)); e.Inference == nil || e.Inference.Model != "a/b" || e.Deployment != nil {
		t.Errorf("the replica has %+v and %+v", e.Inference, e.Deployment)
	}
	scale := func(n int) command.Result {
		w.pass(time.Second)
		return w.must(command.ScaleDeployment{Term: w.term, Deployment: id, Replicas: n, Since: w.get(id).Deployment.ChangedAt})
	}
	stale := command.ScaleDeployment{Term: w.term, Deployment: id, Replicas: 2, Since: w.get(id).Deployment.ChangedAt}
	scale(9)
	w.mustBe(id, compute.DeploymentActive, 3)
	if r := w.must(stale); !r.Repeat {
		t.Errorf("a decision about the state before is %+v", r)
	}
	w.run(id)
	scale(0)
	w.mustBe(id, compute.DeploymentPaused, 0)
	if e := w.get(w.replica(id, 3)); e.Stop == compute.StopNone {
		t.Error("the replicas of a paused deployment go on")
	}
	if scale(2); w.get(id).Deployment.State != compute.DeploymentPaused {
		t.Error("the leader resumed it without a request")
	}
	w.must(command.ResumeDeployment{Deployment: id})
	w.mustBe(id, compute.DeploymentActive, 1)
	if r := w.must(command.ResumeDeployment{Deployment: id}); !r.Repeat {
		t.Errorf("resumed twice: %+v", r)
	}
}

// TestDeploymentFails gives a deployment up after so many starts, until it is started
// again.
func TestDeploymentFails(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	for range 2 {
		w.mustBe(id, compute.DeploymentActive, 1)
		w.pass(time.Hour)
		w.run(id)
		w.must(w.ended(w.replica(id, 1), compute.StatusFailed, time.Second))
	}
	w.mustBe(id, compute.DeploymentFailed, 0)
	e := w.get(id)
	if e.Status.Terminal() || e.Detail == "" || e.Deployment.Last.IsZero() {
		t.Errorf("it is %s: %q, last %v", e.Status, e.Detail, e.Deployment.Last)
	}
	if w.reconcile(id) != 0 {
		t.Error("it starts all the same")
	}
	w.must(command.ChangeDeployment{Op: w.op(w.org, "start"), Actor: w.ada, Deployment: id, Start: true})
	w.mustBe(id, compute.DeploymentActive, 1)
	if w.get(id).Detail != "" || w.reconcile(id) != 1 {
		t.Error("a started deployment does not start at once")
	}
}

// TestChangeDeployment stops and starts a deployment, for its organization only.
func TestChangeDeployment(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	w.run(id)
	stop := command.ChangeDeployment{Op: w.op(w.org, "stop"), Actor: w.ada, Deployment: id}
	foreign := stop
	foreign.Op, foreign.Actor = w.op(w.other.Org, "stop"), w.other
	if r := w.do(foreign); r.Refusal == nil || r.Refusal.Code != compute.CodeNotFound {
		t.Errorf("a foreign organization: %+v", r)
	}
	w.must(stop)
	w.mustBe(id, compute.DeploymentStopped, 0)
	w.must(command.ResumeDeployment{Deployment: id})
	w.mustBe(id, compute.DeploymentStopped, 0) // A request starts only an idle deployment.
	if r := w.do(command.ScaleService{Op: w.op(w.org, "scale"), Actor: w.ada, Service: id, Replicas: 2}); r.Refusal == nil || r.Refusal.Code != compute.CodeConflict {
		t.Errorf("%+v", r)
	}
	plain := w.service()
	if r := w.do(command.ChangeDeployment{Op: w.op(w.org, "x"), Actor: w.ada, Deployment: plain}); r.Refusal == nil || r.Refusal.Code != compute.CodeNotFound {
		t.Errorf("%+v", r)
	}
}

// TestDeploymentRefusals checks that impossible deployments are refused.
func TestDeploymentRefusals(t *testing.T) {
	w := newestWorld(t)
	for name, change := range map[string]func(*compute.Execution){
		"max":    func(e *compute.Execution) { e.Deployment.Max = 0 },
		"min":    func(e *compute.Execution) { e.Deployment.Min = 4 },
		"rps":    func(e *compute.Execution) { e.Deployment.TargetMilliRPS = 0 },
		"p95":    func(e *compute.Execution) { e.Deployment.TargetP95 = 0 },
		"window": func(e *compute.Execution) { e.Deployment.Window = -1 },
		"starts": func(e *compute.Execution) { e.Deployment.Starts = 0 },
		"model":  func(e *compute.Execution) { e.Inference.Model = "" },
		"engine": func(e *compute.Execution) { e.Inference.Engine = "" },
		"arg":    func(e *compute.Execution) { e.Inference.Args = []string{"a\nb"} },
		"none":   func(e *compute.Execution) { e.Inference = nil },
		"asked":  func(e *compute.Execution) { e.Deployment.AskedVRAMMiB = 1 },
	} {
		base := w.deploymentCommand()
		change(&base.Execution)
		if r := w.do(base); r.Refusal == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// TestAskedVRAM records the GPU memory that was asked for once every server knows it, and
// keeps it in an update.
func TestAskedVRAM(t *testing.T) {
	const before = 15
	w := newEmptyWorld(t)
	w.format = before
	w.fill()
	w.must(command.SetFormat{Term: w.term, Format: before})
	w.offerEcho()
	c := w.deploymentCommand()
	e := &c.Execution
	e.Profile, e.MinVRAMMiB, e.Deployment.AskedVRAMMiB = "gpu.t4", 12<<10, 8<<10
	if err := w.view().Allows(c); err == nil {
		t.Error("it is proposed before every server knows it")
	}
	if got := w.get(w.must(c).Execution); got.Deployment.AskedVRAMMiB != 0 || got.MinVRAMMiB != 12<<10 {
		t.Errorf("before the format it records %d of %d MiB", got.Deployment.AskedVRAMMiB, got.MinVRAMMiB)
	}
	for n := range w.view().Nodes() {
		known := *n
		known.Format = format.Newest
		w.must(command.RegisterNode{Node: known})
	}
	w.must(command.SetFormat{Term: w.term, Format: format.Newest})
	if err := w.view().Allows(c); err != nil {
		t.Error(err)
	}
	e.ID, c.Op = w.executionID(), command.Op{}
	id := w.must(c).Execution
	w.must(command.UpdateDeployment{
		Actor: c.Actor, Deployment: id, Model: &compute.Inference{Engine: "echo", Model: "a/c"}, MinVRAMMiB: 9 << 10,
	})
	if got := w.get(id); got.Deployment.AskedVRAMMiB != 8<<10 || got.MinVRAMMiB != 9<<10 || got.Inference.Model != "a/c" {
		t.Errorf("it records %d of %d MiB for %s", got.Deployment.AskedVRAMMiB, got.MinVRAMMiB, got.Inference.Model)
	}
}

// unpaid runs a deployment in a format until nothing pays for its replica, and returns it
// with the replica, which was asked to stop. The ceiling is 0 for the organization's credits.
func unpaid(t *testing.T, known uint64, ceiling compute.Credits) (w *world, id, replica compute.ExecutionID) {
	t.Helper()
	w = newReplicaWorld(t, 100, known)
	if ceiling == 0 {
		w = newReplicaWorld(t, 25, known)
	} else {
		w.limit(compute.Budget{MaxCredits: ceiling})
	}
	id = w.deployment()
	if known == format.Newest {
		w.must(command.SetModel{Actor: w.root, ID: "chat", Deployment: id})
	}
	w.run(id)
	replica = w.replica(id, 1)
	for range 60 {
		if w.get(replica).Stop != compute.StopNone {
			return w, id, replica
		}
		w.pass(30 * time.Second)
	}
	t.Fatal("the replica goes on without credits")
	return w, id, replica
}

// TestUnpaidDeploymentStays stops a deployment for which nothing pays, published or not,
// and starts it after a top-up. Formats before end it.
func TestUnpaidDeploymentStays(t *testing.T) {
	const minute = compute.Credits(60 * 15)
	for name, test := range map[string]struct {
		ceiling compute.Credits
		topUp   func(*world) command.Command
		detail  string
	}{
		"credits": {0, func(w *world) command.Command {
			return command.Grant{Actor: w.root, Org: w.org, Amount: 100 * minute}
		}, "the organization's credits are exhausted"},
		"ceiling": {25 * minute, func(w *world) command.Command {
			return command.RemoveBudget{Actor: w.ada, Org: w.org}
		}, "the organization's ceiling is reached"},
	} {
		t.Run(name+" in format 15", func(t *testing.T) {
			w, id, replica := unpaid(t, 15, test.ceiling)
			w.mustBe(id, compute.DeploymentActive, 1)
			w.must(w.ended(replica, compute.StatusCancelled, w.now.Sub(w.get(replica).StartedAt)))
			w.wantStatus(id, compute.StatusCancelled, compute.ReasonCredits)
		})
		t.Run(name, func(t *testing.T) {
			w, id, replica := unpaid(t, format.Newest, test.ceiling)
			stays := func() {
				t.Helper()
				w.mustBe(id, compute.DeploymentStopped, 0)
				if e := w.get(id); e.Stop != compute.StopNone || e.Status.Terminal() || e.Detail != test.detail {
					t.Errorf("it is %s, stopped %d: %q", e.Status, e.Stop, e.Detail)
				}
			}
			start := func() {
				t.Helper()
				w.must(command.ChangeDeployment{Op: w.op(w.org, w.executionID().String()), Actor: w.ada, Deployment: id, Start: true})
			}
			stays()
			w.must(test.topUp(w))
			start()
			w.must(w.ended(replica, compute.StatusCancelled, w.now.Sub(w.get(replica).StartedAt)))
			w.mustBe(id, compute.DeploymentActive, 1) // It was started after the replica had been stopped.
			w.pass(time.Minute)
			w.run(id)
			if e := w.get(w.replica(id, 1)); e.ID == replica || e.Status != compute.StatusRunning {
				t.Errorf("after a top-up its replica is %s", e.Status)
			}
			if m, ok := w.view().Model("chat"); !ok || m.Deployment != id {
				t.Errorf("the published model is %+v", m)
			}
		})
	}
}

// TestUnpaidStart stops a deployment whose first replicas nothing pays for.
func TestUnpaidStart(t *testing.T) {
	for known, state := range map[uint64]compute.DeploymentState{
		15: compute.DeploymentActive, format.Newest: compute.DeploymentStopped,
	} {
		w := newReplicaWorld(t, 25, known)
		w.offerEcho()
		c := w.deploymentCommand()
		c.Execution.Deployment.Min = 2 // The credits pay for both at first.
		id := w.must(c).Execution
		w.limit(compute.Budget{MaxCredits: 15 * 60 * 15})
		w.reconcile(id)
		e := w.get(id)
		if e.Deployment.State != state || e.Status.Terminal() == (known == format.Newest) || e.Service.Live != 0 || w.account().Held != 0 {
			t.Errorf("in format %d it is %s, %s, has %d replicas and holds %s", known, e.Status, e.Deployment.State,
				e.Service.Live, w.account().Held)
		}
		if want := "the organization's ceiling is reached"; known == format.Newest && e.Detail != want {
			t.Errorf("its detail is %q, want %q", e.Detail, want)
		}
	}
}

// TestResumeWithinQuotas resumes a deployment only if its organization may use the hardware of its
// replicas and each quota that counts one is large enough for it, whatever has a place already.
func TestResumeWithinQuotas(t *testing.T) {
	key := compute.KeyID{UUID: compute.UUID{9}}
	h100s := anyOf("h100", "t4")
	for name, test := range map[string]struct {
		profile string
		change  func(*compute.Execution)
		quotas  []compute.Quota
		want    string // The code of the refusal, "" for none.
	}{
		"no quota":                {"t4.2x", nil, nil, ""},
		"denied":                  {"t4.2x", nil, []compute.Quota{{Profile: "gpu.t4", Denied: true}}, "profile_denied"},
		"another size denied":     {"t4.2x", nil, []compute.Quota{{Profile: "gpu.t4.4x", Denied: true}}, ""},
		"organization too small":  {"t4.2x", nil, []compute.Quota{{MilliGPU: 1999}}, "quota_gpus"},
		"organization used up":    {"t4.2x", nil, []compute.Quota{{MilliGPU: 2000, Concurrent: 1}}, ""},
		"tag too small":           {"t4.2x", tagged("red"), []compute.Quota{{Tag: "red", MilliGPU: 1000}}, "quota_gpus"},
		"another tag too small":   {"t4.2x", tagged("red"), []compute.Quota{{Tag: "blue", MilliGPU: 1000}}, ""},
		"key too small":           {"t4.2x", nil, []compute.Quota{{Key: key, MilliGPU: 1000}}, "quota_gpus"},
		"profile too small":       {"t4.2x", nil, []compute.Quota{{Profile: "gpu.t4", MilliGPU: 1000}}, "quota_gpus"},
		"one of two types denied": {"any.2x", h100s, []compute.Quota{{Profile: "gpu.t4", Denied: true}}, ""},
		"both types denied": {
			"any.2x", h100s,
			[]compute.Quota{{Profile: "gpu.t4", Denied: true}, {Profile: "gpu.h100", Denied: true}},
			"profile_denied",
		},
		"one denied and one too small": {
			"any.2x", h100s,
			[]compute.Quota{{Profile: "gpu.t4", Denied: true}, {Profile: "gpu.h100", MilliGPU: 1000}},
			"quota_gpus",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newestWorld(t)
			w.offerEcho()
			w.must(command.CreateKey{Actor: w.ada, Key: compute.Key{ID: key, Lookup: "0123456789"}})
			w.ada.Key = key
			c := w.deploymentCommand()
			c.Execution.Profile = test.profile
			or(test.change)(&c.Execution)
			id := w.must(c).Execution
			w.must(command.ScaleDeployment{Term: w.term, Deployment: id, Since: w.get(id).Deployment.ChangedAt})
			w.place("n3", w.submit("t4.2x", or(test.change))) // Its end would make room.
			for _, q := range test.quotas {
				q.Org = w.org
				w.quota(q)
			}
			resume := command.ResumeDeployment{Deployment: id}
			if check := w.view().CheckReplicas(w.get(id)); (check != nil) != (test.want != "") {
				t.Errorf("the request is checked with %v", check)
			}
			if test.want == "" {
				w.must(resume)
				w.mustBe(id, compute.DeploymentActive, 1)
				return
			}
			w.refused(resume, compute.CodeForbidden, test.want)
			w.mustBe(id, compute.DeploymentPaused, 0)
		})
	}
}

// TestDeniedReplicas waits for a replica that has a place although its hardware is denied, and not
// for one that can get none.
func TestDeniedReplicas(t *testing.T) {
	w := newestWorld(t)
	id := w.deployment()
	w.reconcile(id)
	w.profile("cpu", compute.Quota{Denied: true})
	if err := w.view().CheckReplicas(w.get(id)); compute.CodeOf(err) != compute.CodeForbidden {
		t.Errorf("a replica that waits: %v", err)
	}
	w.profile("cpu", compute.Quota{})
	w.place("n3", w.replica(id, 1))
	w.profile("cpu", compute.Quota{Denied: true})
	if err := w.view().CheckReplicas(w.get(id)); err != nil {
		t.Errorf("a replica that starts: %v", err)
	}
}
