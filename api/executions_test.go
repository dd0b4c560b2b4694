package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

func TestStart(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{
		"code": "print(1)", "machine_type": "A100", "timeout": 61, "file_name": "x.py",
		"import_files": `{"pkg/a.py":"A = 1","b.py":""}`, "env": map[string]string{"X": "1"},
		"tags": []string{"t"}, "priority": 70, "network": "none", "disconnect_grace": 5, "max_retries": 3,
		"max_credits": 0.5, "prior_imports": []string{"import os"}, "unknown_field": 1,
		"user_callback_urls": []string{"https://example.com/x?y=${{ secrets.A }}"},
	}, &started)
	e, ok := w.machine.View().AnyExecution(started.ExecutionID)
	if !ok {
		t.Fatal("the state has no such execution")
	}
	if started.Status != compute.StatusQueued || e.Profile != "gpu.a100" || e.Timeout != 61*time.Second ||
		e.Priority != 70 || e.Network != compute.NetworkNone || e.DisconnectGrace != 5*time.Second ||
		e.MaxRetries != 3 || e.MaxCredits != compute.Credit/2 || e.FileName != "x.py" || len(e.CallbackURLs) != 1 {
		t.Errorf("record is %+v", e)
	}
	bundle, err := compute.DecodeBundle(e.Bundle.Inline)
	w.ok(err)
	if bundle.Code != "print(1)" || bundle.ImportFiles["pkg/a.py"] != "A = 1" || bundle.Env["X"] != "1" ||
		bundle.PriorImports[0] != "import os" || bundle.FileName != "x.py" {
		t.Errorf("bundle is %+v", bundle)
	}
	if !strings.HasPrefix(started.StreamingURL, "http://berth.test/api/v1/stream/"+started.ExecutionID.String()+"?token=") {
		t.Errorf("streaming URL is %s", started.StreamingURL)
	}
}

func TestLargeBundleGoesToBlobs(t *testing.T) {
	w := newWorld(t)
	noise := make([]byte, 64<<10)
	_, err := (&numbers{}).Read(noise)
	w.ok(err)
	var code strings.Builder
	for _, b := range noise {
		code.WriteByte("abcdefghijklmnopqrstuvwxyz0123456789"[b%36])
	}
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": code.String()}, &started)
	e, _ := w.machine.View().AnyExecution(started.ExecutionID)
	if e.Bundle.Inline != nil || len(w.blobs.data) != 1 {
		t.Errorf("%d bytes inline, %d blobs", len(e.Bundle.Inline), len(w.blobs.data))
	}
	var got wire.Execution
	w.mustDo("GET", "/execution/"+e.ID.String(), w.adaKey, nil, &got)
	if got.Code != code.String() {
		t.Error("the code read back differs")
	}
	w.blobs.err = compute.Errorf(compute.CodeNoSpace, "No space.")
	w.want(507, "no_space", "POST", "/execution/streaming/start", w.adaKey, map[string]any{"code": code.String()})
}

func TestExecutionLifecycle(t *testing.T) {
	w := newWorld(t)
	id := w.start("gpu.h100")
	path := "/execution/" + id.String()
	var got wire.Execution
	w.mustDo("GET", path, w.adaKey, nil, &got)
	if got.Status != compute.StatusQueued || got.PendingReason == nil || *got.PendingReason != "scheduling" ||
		got.Billed != nil || got.ReturnCode != nil || got.StartTime != nil {
		t.Errorf("queued execution is %+v", got)
	}
	w.complete(id, 1, 10*time.Second)
	got = wire.Execution{}
	w.mustDo("GET", path, w.adaKey, nil, &got)
	if got.Status != compute.StatusCompleted || got.Stdout != "1\n" || got.CombinedOutput != "1\n" ||
		*got.ReturnCode != 0 || *got.Billed != 9000 || got.Code != "print(1)" || *got.Metadata.Node != "n1" ||
		len(got.Attempts) != 1 || len(got.Errors) != 0 || got.PendingReason != nil {
		t.Errorf("completed execution is %+v", got)
	}
	var timing wire.TimingAnswer
	w.mustDo("GET", path+"/timing", w.adaKey, nil, &timing)
	if timing.Timing.Running != 10 || timing.Timing.Total != 10 {
		t.Errorf("timing is %+v", timing.Timing)
	}
	w.mustDo("DELETE", path, w.adaKey, nil, nil)
	w.want(404, "not_found", "GET", path, w.adaKey, nil)
	if len(w.logs.deleted) != 1 {
		t.Error("the output was not deleted")
	}
	var history wire.ExecutionHistory
	w.mustDo("GET", "/billing/history", w.adaKey, nil, &history)
	if len(history.Executions) != 1 || *history.Executions[0].Billed != 9000 || history.TotalCreditsSpent != 9000 {
		t.Errorf("history after the deletion is %+v", history)
	}
}

func TestFailuresSayWhy(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu")
	w.place(id, 1)
	w.begun(id)
	w.ended(id, compute.StatusFailed, compute.ReasonTimeout, 143, time.Second)
	var status wire.ExecutionStatus
	w.mustDo("GET", "/execution/streaming/"+id.String()+"/status", w.adaKey, nil, &status)
	if status.Status != compute.StatusFailed || len(status.Errors) != 1 || !strings.Contains(status.Errors[0], "timeout") {
		t.Errorf("status is %+v", status)
	}
	// It is no GPU selection.
	w.want(404, "", "GET", "/execution/gpu_selection/"+id.String()+"/status", w.adaKey, nil)
	w.want(404, "", "GET", "/execution/gpu_selection/"+id.String(), w.adaKey, nil)
	w.want(404, "", "POST", "/execution/gpu_selection/abort/"+id.String(), w.adaKey, nil)
}

func TestStop(t *testing.T) {
	w := newWorld(t)
	var stopped wire.Stopped
	queued := w.start("cpu")
	w.mustDo("POST", "/execution/streaming/abort/"+queued.String(), w.adaKey, nil, &stopped)
	if stopped.Status != compute.StatusAborted {
		t.Errorf("abort of a queued one: %+v", stopped)
	}
	w.want(409, "already_ended", "POST", "/workloads/abort/"+queued.String(), w.adaKey, nil)
	live := w.start("cpu")
	w.place(live, 1)
	w.begun(live)
	w.want(409, "not_terminal", "DELETE", "/execution/"+live.String(), w.adaKey, nil)
	w.mustDo("POST", "/workloads/stop/"+live.String(), w.adaKey, nil, &stopped)
	if e, _ := w.machine.View().AnyExecution(live); stopped.Status != compute.StatusRunning || e.Stop != compute.StopGraceful {
		t.Errorf("stop of a live one: %+v, record %+v", stopped, e)
	}
	var live2 []wire.ExecutionSummary
	w.mustDo("GET", "/workloads/list", w.adaKey, nil, &live2)
	if len(live2) != 1 || live2[0].ExecutionID != live {
		t.Errorf("workloads are %+v", live2)
	}
}

func TestWait(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu")
	path := "/execution/" + id.String()
	before := w.mustDo("GET", path, w.adaKey, nil, nil)
	etag := before.header.Get("ETag")
	if etag == "" {
		t.Fatal("no ETag")
	}
	same := w.send("GET", path, w.adaKey, nil, "If-None-Match", etag)
	if same.status != http.StatusNotModified || len(same.body) != 0 {
		t.Errorf("If-None-Match = %d %s", same.status, same.body)
	}
	got := make(chan wire.Execution)
	go func() {
		var e wire.Execution
		w.mustDo("GET", path+"?wait=30s", w.adaKey, nil, &e)
		got <- e
	}()
	w.eventually("a held answer", func() bool { return w.streams() == 1 })
	w.place(id, 1)
	if e := <-got; e.Status != compute.StatusStarting && e.Status != compute.StatusRunning {
		t.Errorf("waited for %+v", e)
	}
	var short wire.Execution
	w.mustDo("GET", path+"?wait=0.05", w.adaKey, nil, &short)
	if short.Status != compute.StatusStarting {
		t.Errorf("after a wait for nothing: %+v", short)
	}
	// The end is waited for through all changes before it.
	go func() {
		var e wire.Execution
		w.mustDo("GET", path+"?wait=60s&until=end", w.adaKey, nil, &e, "If-None-Match", etag)
		got <- e
	}()
	w.eventually("a held answer", func() bool { return w.streams() == 1 })
	w.begun(id)
	w.ended(id, compute.StatusFailed, compute.ReasonExitCode, 3, time.Second)
	if e := <-got; e.Status != compute.StatusFailed {
		t.Errorf("waited until %+v", e)
	}
	// One that has ended is not waited for.
	w.mustDo("GET", path+"?wait=60", w.adaKey, nil, &short)
	if *short.ReturnCode != 3 || short.Errors[0] != "exit_code" {
		t.Errorf("ended execution is %+v", short)
	}
	for _, bad := range []string{"61", "-1s", "soon", "1e9"} {
		w.want(422, "", "GET", path+"?wait="+bad, w.adaKey, nil)
	}
	w.want(422, "", "GET", path+"?wait=1s&until=never", w.adaKey, nil)
}

func TestOutputAbsent(t *testing.T) {
	w := newWorld(t)
	id := w.start("cpu")
	w.complete(id, 1, time.Second)
	w.logs.err = compute.Errorf(compute.CodeUnavailable, "The node is gone.")
	var got wire.Execution
	w.mustDo("GET", "/execution/"+id.String(), w.adaKey, nil, &got)
	if len(got.Warnings) != 1 || got.Status != compute.StatusCompleted {
		t.Errorf("without its output: %+v", got)
	}
}

// TestRetriesAreShown loses the node of an execution that may restart: every
// view of it says so, and its tag changes.
func TestRetriesAreShown(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	var started wire.Started
	w.mustDo("POST", "/execution/streaming/start", w.adaKey, map[string]any{
		"code": "print(1)", "execution_type": "t4", "max_retries": 2,
	}, &started)
	id := started.ExecutionID
	w.place(id, 3)
	path := "/execution/" + id.String()
	before := w.mustDo("GET", path, w.adaKey, nil, nil).header.Get("ETag")
	a := w.attempt(id)
	w.must(command.LoseAttempts{Term: 1, Node: a.Node, Attempts: []command.AttemptRef{{Execution: id, Epoch: a.Epoch}}})
	var e wire.Execution
	if after := w.mustDo("GET", path, w.adaKey, nil, &e).header.Get("ETag"); after == before {
		t.Error("the tag is the same")
	}
	if e.Status != compute.StatusQueued || e.Retries != 1 || e.MaxRetries != 2 ||
		e.PendingReason == nil || *e.PendingReason != "retry" || *e.Attempts[0].Reason != "node_lost" {
		t.Errorf("got %+v", e)
	}
	var list []wire.ExecutionSummary
	w.mustDo("GET", "/workloads/list", w.adaKey, nil, &list)
	if len(list) != 1 || list[0].Retries != 1 || list[0].MaxRetries != 2 {
		t.Errorf("listed as %+v", list)
	}
}

// upgrade has every node know the newest format of the state, and the state
// use it.
func (w *world) upgrade() {
	w.Helper()
	for n := range w.machine.View().Nodes() {
		known := *n
		known.Format = format.Newest
		w.must(command.RegisterNode{Node: known})
	}
	w.must(command.SetFormat{Term: 1, Format: format.Newest})
	for n := range w.machine.View().Nodes() {
		w.must(command.SetInventory{Term: 1, Inventory: compute.Inventory{
			Node: n.ID, Version: n.InventoryVersion + 1, VCPUMilli: n.VCPUMilli, MemoryMiB: n.MemoryMiB,
			GPUs: unheld(n.GPUs), Gaps: n.Gaps, ScratchMiB: n.ScratchMiB, Offers: engines(),
		}})
	}
}

// engines are the offers of a node with good container engines.
func engines() []compute.Offer {
	return []compute.Offer{
		compute.ComposeOffer(false), compute.ComposeOffer(true), compute.DockerOffer(false), compute.DockerOffer(true),
		compute.InferenceOffer("echo"),
	}
}

// unheld returns devices as a node reports them.
func unheld(devices []compute.GPU) []compute.GPU {
	out := slices.Clone(devices)
	for i := range out {
		out[i].UsedMilli = 0
	}
	return out
}
