package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// TestModelsThatFitNoGPU refuses deployments of models that are too large for the GPUs
// of each replica, and names those that would do. Each GPU of the test has 80 GiB.
func TestModelsThatFitNoGPU(t *testing.T) {
	const gib = 1 << 30
	sizes := map[string]int64{
		"a/small": 10 * gib, "a/full": 72 * gib, "a/two": 100 * gib, "a/huge": 2000 * gib,
	}
	var token string
	w := newWorld(t, func(c *handler.Config) {
		c.Inference.Size = func(_ context.Context, m handler.Weights) (int64, bool) {
			token = m.Token
			size, known := sizes[m.Model]
			if m.Quantization == "fp8" {
				size /= 2
			}
			if m.DType == "float32" {
				size *= 2
			}
			return size, known && m.Quantization != "another"
		}
	})
	w.addNode(4, "big", "big", "big", "big", "old")
	w.upgrade()
	ask := func(model, kind string, count int, args string) answer {
		return w.send("POST", "/inference/create", w.adaKey, map[string]any{
			"hf_model_id": model, "engine": "echo", "gpu_type": kind, "gpu_count": count, "vllm_args": args,
			"target_rps": 1, "target_latency_p95_ms": 100, "stabilisation_window": 60, "hf_token": "hf_x",
		})
	}
	for _, test := range []struct {
		model, kind string
		count       int
		args        string
		refusal     string // "" for none.
	}{
		{"a/small", "big", 1, "", ""},
		{"a/full", "old", 1, "", ""},
		{"a/two", "big", 1, "", "a/two needs about 111 GiB of GPU memory, and gpu.big has less: gpu.a100.2x, gpu.big.2x, gpu.h100.2x"},
		{"a/two", "big", 2, "", ""},
		{"a/two", "any", 1, "", "gpu.big.2x"},
		{"a/two", "any", 2, "", ""},
		{"a/small", "big.100m", 1, "", "gpu.big"},
		{"a/small", "big.500m", 1, "", ""},
		{"a/huge", "big", 4, "", "no GPUs of one node have that much memory"},
		{"a/huge", "big", 4, "--quantization another", ""},
		{"a/huge", "big", 4, "--quantization fp8", "a/huge needs about 1101 GiB of GPU memory with these vllm_args, and gpu.big.4x has less"},
		{"a/huge", "big", 4, "--quantization=fp8", "a/huge needs about 1101 GiB"},
		{"a/two", "big", 1, "--quantization fp8", ""},
		{"a/full", "old", 1, "--dtype float32", "a/full needs about 159 GiB of GPU memory with these vllm_args, and gpu.old has less"},
		{"a/full", "old", 1, "--dtype=float32 --cpu-offload-gb 80", ""},
		{"a/full", "old", 1, "--dtype half", ""},
		{"a/two", "big", 1, "--cpu-offload-gb 10", "a/two needs about 101 GiB of GPU memory with these vllm_args, and gpu.big has less: " +
			"gpu.a100.2x, gpu.big.2x, gpu.h100.2x, gpu.l40s.2x would fit"},
		{"a/two", "big", 1, "--cpu-offload-gb=40", ""},
		{"a/huge", "big", 4, "--cpu-offload-gb 400", "a/huge needs about 601 GiB"},
		{"a/huge", "big", 4, "--cpu-offload-gb 480", ""},
		{"a/huge", "big", 4, "--quantization fp8 --cpu-offload-gb 200.5", ""},
		{"a/two", "big", 1, "--cpu-offload-gb all", ""},
		{"a/huge", "big", 4, "--n-gpu-layers 20", ""},
		{"a/huge", "big", 4, "--kv-offloading-size 20", ""},
		{"a/huge", "big", 4, "--seed 1", "a/huge needs about 2201 GiB of GPU memory, and"},
		{"a/huge", "cpu", 1, "", ""},
		{"a/unknown", "big", 1, "", ""},
	} {
		name := fmt.Sprintf("%s on %d %s %s", test.model, test.count, test.kind, test.args)
		a := ask(test.model, test.kind, test.count, test.args)
		switch {
		case test.refusal == "" && a.status != 200:
			t.Errorf("%s: %d %s", name, a.status, a.body)
		case test.refusal != "" && (a.status != 400 || !strings.Contains(string(a.body), test.refusal) ||
			!strings.Contains(string(a.body), "never_fits")):
			t.Errorf("%s: %d %s, want %q", name, a.status, a.body, test.refusal)
		}
	}
	if token != "hf_x" {
		t.Errorf("the hub is asked with the token %q", token)
	}
	var out wire.DeploymentCreated
	if err := json.Unmarshal(ask("a/two", "any", 2, "").body, &out); err != nil {
		t.Fatal(err)
	}
	if e, ok := w.machine.View().AnyExecution(out.ID); !ok || e.MinVRAMMiB < 50<<10 || e.MinVRAMMiB > 60<<10 {
		t.Errorf("its replicas ask for %+v", e)
	}
}

// TestUpdatedModelsNeedTheirOwnSize changes the model of a deployment: its replicas then need
// the memory of that model, and what the user asked for.
func TestUpdatedModelsNeedTheirOwnSize(t *testing.T) {
	const gib = 1 << 30
	sizes := map[string]int64{"a/small": 10 * gib, "a/full": 50 * gib, "a/tiny": gib}
	w := newWorld(t, func(c *handler.Config) {
		c.Inference.Size = func(_ context.Context, m handler.Weights) (int64, bool) {
			size, known := sizes[m.Model]
			return size, known
		}
	})
	w.addNode(4, "big", "big")
	w.upgrade()
	for _, test := range []struct {
		name   string
		asked  int
		update map[string]any
		want   int64 // MiB.
	}{
		{"smaller", 0, map[string]any{"hf_model_id": "a/small"}, 11265},
		{"larger", 0, map[string]any{"hf_model_id": "a/full", "vllm_args": "--seed 1"}, 56321},
		{"smaller than what was asked", 24, map[string]any{"hf_model_id": "a/small"}, 24 << 10},
		{"larger than what was asked", 4, map[string]any{"hf_model_id": "a/small"}, 11265},
		{"of unknown size", 24, map[string]any{"hf_model_id": "a/unknown"}, 24 << 10},
		{"of unknown size, nothing asked", 0, map[string]any{"hf_model_id": "a/unknown"}, 0},
		{"partly elsewhere", 0, map[string]any{"vllm_args": "--n-gpu-layers 3"}, 0},
	} {
		var created wire.DeploymentCreated
		w.mustDo("POST", "/inference/create", w.adaKey, map[string]any{
			"hf_model_id": "a/full", "engine": "echo", "gpu_type": "big", "gpu_vram_gb": test.asked,
			"target_rps": 1, "target_latency_p95_ms": 100, "stabilisation_window": 60,
		}, &created)
		path := "/inference/deployments/" + created.ID.String()
		w.mustDo("PATCH", path, w.adaKey, map[string]any{"hf_model_id": "a/tiny"}, nil)
		w.mustDo("PATCH", path, w.adaKey, test.update, nil)
		if e, _ := w.machine.View().AnyExecution(created.ID); e.MinVRAMMiB != test.want {
			t.Errorf("%s: its replicas ask for %d MiB, want %d", test.name, e.MinVRAMMiB, test.want)
		}
	}
	var created wire.DeploymentCreated
	w.mustDo("POST", "/inference/create", w.adaKey, map[string]any{
		"hf_model_id": "a/full", "engine": "echo", "gpu_type": "big",
		"target_rps": 1, "target_latency_p95_ms": 100, "stabilisation_window": 60,
	}, &created)
	delete(sizes, "a/full")
	path := "/inference/deployments/" + created.ID.String()
	w.mustDo("PATCH", path, w.adaKey, map[string]any{"vllm_args": "--seed 1"}, nil)
	if e, _ := w.machine.View().AnyExecution(created.ID); e.MinVRAMMiB != 56321 {
		t.Errorf("once its size is not known any more, its replicas ask for %d MiB", e.MinVRAMMiB)
	}
}

// deploy deploys a model on processors as ada.
func (w *world) deploy() compute.ExecutionID {
	w.Helper()
	var created wire.DeploymentCreated
	w.mustDo("POST", "/inference/create", w.adaKey, map[string]any{
		"hf_model_id": "a/small", "engine": "echo", "gpu_type": "cpu", "gpu_count": 1,
		"target_rps": 1, "target_latency_p95_ms": 100, "stabilisation_window": 60,
	}, &created)
	return created.ID
}

// TestDeploymentsInPages reads the list one deployment at a time: the newest first, and
// those that are created or removed meanwhile do not matter.
func TestDeploymentsInPages(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	var ids []compute.ExecutionID
	for range 4 {
		ids = append(ids, w.deploy())
	}
	slices.Reverse(ids)
	const path = "/inference/deployments"
	list := func(query string) (found []compute.ExecutionID, total int, next string) {
		t.Helper()
		var out wire.Deployments
		a := w.mustDo("GET", path+query, w.adaKey, nil, &out)
		for _, d := range out.Deployments {
			found = append(found, d.ID)
		}
		return found, out.Total, a.header.Get("X-Next-Cursor")
	}
	if all, total, next := list(""); !slices.Equal(all, ids) || total != 4 || next != "" {
		t.Errorf("the list is %v of %d, and then %q, want %v", all, total, next, ids)
	}
	found, total, next := list("?limit=2")
	if !slices.Equal(found, ids[:2]) || total != 4 || next == "" {
		t.Fatalf("the first page is %v of %d, and then %q", found, total, next)
	}
	w.deploy()
	w.mustDo("DELETE", path+"/"+ids[1].String(), w.adaKey, nil, nil)
	if found, total, next = list("?limit=2&cursor=" + next); !slices.Equal(found, ids[2:]) || total != 4 || next != "" {
		t.Errorf("the second page is %v of %d, and then %q", found, total, next)
	}
	if a := w.send("GET", path+"?cursor=!", w.adaKey, nil); a.status != 422 {
		t.Errorf("a bad cursor gets %d", a.status)
	}
}

// TestDeploymentStatuses follows a deployment from its start over crashes to its failure,
// and through an update.
func TestDeploymentStatuses(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) {
		c.Backoff.First, c.Backoff.Most, c.Backoff.Reset = time.Second, time.Minute, time.Hour
	})
	w.upgrade()
	created := w.deploy()
	path := "/inference/deployments/" + created.String()
	get := func(status string) (d wire.Deployment) {
		t.Helper()
		w.mustDo("GET", path, w.adaKey, nil, &d)
		if d.Status != status {
			t.Errorf("it is %s with %+v, want %s", d.Status, d.Rows, status)
		}
		return d
	}
	last := byte(0)
	start := func(number int) compute.ExecutionID {
		t.Helper()
		last++
		id := compute.ExecutionID{UUID: compute.UUID{200, last}}
		w.must(command.StartReplicas{Term: 1, Service: created, Replicas: []command.NewReplica{{Number: number, ID: id}}})
		w.place(id, 1)
		return id
	}
	ready := func(id compute.ExecutionID) {
		t.Helper()
		w.begun(id)
		w.must(command.SetReady{Node: w.attempt(id).Node, Execution: id, Epoch: w.attempt(id).Epoch, Ready: true})
	}
	get("pending")
	first := start(1)
	w.logs.write(first, handler.Line{Seq: 1, Stream: "system", Text: []byte("model: fetched 3 of 9 MiB of a/small")})
	if d := get("starting"); len(d.Rows) != 1 || d.Rows[0].Detail == nil || *d.Rows[0].Detail != "fetched 3 of 9 MiB of a/small" {
		t.Errorf("it does not say how far its model is: %+v", d.Rows)
	}
	ready(first)
	if d := get("ready"); d.Ready != 1 || d.Rows[0].Detail != nil {
		t.Errorf("when it is ready it has %+v", d.Rows)
	}
	w.ended(first, compute.StatusFailed, compute.ReasonExitCode, 3, time.Second)
	if d := get("pending"); d.Rows[0].NextStart == nil || d.Rows[0].Crashes != 1 || d.Rows[0].Status != compute.StatusFailed {
		t.Errorf("after a crash it has %+v", d.Rows)
	}
	var why wire.Explanation
	w.mustDo("GET", "/execution/"+created.String()+"/explain", w.adaKey, nil, &why)
	if len(why.Replicas) != 1 || why.Replicas[0].NextStart == nil || why.Replicas[0].StatusDetails == nil ||
		*why.Replicas[0].StatusDetails != "exit_code" {
		t.Errorf("the explanation is %+v", why.Replicas)
	}
	w.pass(time.Minute)
	w.must(command.Tick{Term: 1})
	second := start(1)
	w.begun(second)
	w.logs.write(second, handler.Line{Seq: 1, Stream: "stderr", Text: []byte("out of memory")})
	w.ended(second, compute.StatusFailed, compute.ReasonExitCode, 3, time.Second)
	if d := get("failed"); d.Detail == nil || len(d.EngineOutput) != 1 || d.EngineOutput[0] != "out of memory" {
		t.Errorf("when it has failed it says %v and %q", d.Detail, d.EngineOutput)
	}
	w.mustDo("POST", path+"/start", w.adaKey, nil, nil)
	ready(start(1))
	get("ready")
	w.mustDo("PATCH", path, w.adaKey, map[string]any{"vllm_args": "--threads 2"}, nil)
	if d := get("scaling"); d.Update == nil || len(d.Args) != 0 {
		t.Errorf("while it is changed it has %+v and %q", d.Update, d.Args)
	}
	w.mustDo("POST", path+"/stop", w.adaKey, nil, nil)
	get("stopped")
}

// TestEndedServicesStartNothing holds that the replicas of a service that was stopped while
// one of them waited are not said to start again.
func TestEndedServicesStartNothing(t *testing.T) {
	w := newWorld(t, func(c *handler.Config) { c.Backoff.First, c.Backoff.Most = time.Second, time.Minute })
	w.upgrade()
	var started wire.ServiceStarted
	w.mustDo("POST", "/execution/service/start", w.adaKey, map[string]any{"code": "x", "execution_type": "cpu"}, &started)
	replica := compute.ExecutionID{UUID: compute.UUID{200, 1}}
	w.must(command.StartReplicas{Term: 1, Service: started.ExecutionID, Replicas: []command.NewReplica{{Number: 1, ID: replica}}})
	w.place(replica, 1)
	w.begun(replica)
	w.ended(replica, compute.StatusFailed, compute.ReasonExitCode, 3, time.Second)
	rows := func() []wire.ServiceReplica {
		t.Helper()
		var why wire.Explanation
		w.mustDo("GET", "/execution/"+started.ExecutionID.String()+"/explain", w.adaKey, nil, &why)
		return why.Replicas
	}
	if got := rows(); len(got) != 1 || got[0].NextStart == nil {
		t.Errorf("while it waits: %+v", got)
	}
	w.mustDo("DELETE", "/services/"+started.ExecutionID.String(), w.adaKey, nil, nil)
	if got := rows(); len(got) > 0 && got[0].NextStart != nil {
		t.Errorf("once it was stopped: %+v", got)
	}
}
