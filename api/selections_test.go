package api_test

import (
	"bytes"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// selected starts a GPU selection with two sub-executions, of a100 and h100.
func (w *world) selected() (parent compute.ExecutionID, children []compute.ExecutionID) {
	w.Helper()
	var started wire.SelectionStarted
	w.mustDo("POST", "/execution/gpu_selection/start", w.adaKey, map[string]any{
		"code": "print(1)", "gpu_types": []string{"H100", "gpu.a100"}, "objective": "fastest", "max_credits": "2",
	}, &started)
	if started.Status != compute.StatusPending {
		w.Fatalf("a GPU selection starts %s", started.Status)
	}
	children = []compute.ExecutionID{{UUID: uuid(501)}, {UUID: uuid(502)}}
	w.must(command.TakeSelection{Term: 1, Parent: started.ExecutionID, Children: []command.Child{
		{ID: children[0], Profile: "gpu.a100"}, {ID: children[1], Profile: "gpu.h100"},
	}})
	return started.ExecutionID, children
}

func TestSelection(t *testing.T) {
	w := newWorld(t)
	parent, children := w.selected()
	path := "/execution/gpu_selection/" + parent.String()
	get := func() wire.Selection {
		var got wire.Selection
		w.mustDo("GET", path, w.adaKey, nil, &got)
		return got
	}
	w.place(children[0], 2)
	w.begun(children[0])
	w.logs.write(children[0],
		handler.Line{Seq: 1, Stream: "stdout", Text: []byte("BERTH_PROGRESS 1/4")},
		handler.Line{Seq: 2, Stream: "stdout", Text: []byte("BERTH_PROGRESS 3/4")})
	w.pass(15 * time.Second)
	got := get()
	if got.Status != compute.StatusRunning || len(got.Rows) != 2 || got.Recommendation != nil || got.Confidence != nil ||
		got.Objective != compute.ObjectiveFastest || *got.MaxCredits != 2*compute.Credit {
		t.Errorf("live selection is %+v", got)
	}
	live, waiting := got.Rows[0], got.Rows[1]
	if live.GPUType != "a100" || *live.Node != "n2" || *live.Progress != 0.75 || live.Credits != nil || live.Duration != nil {
		t.Errorf("live row is %+v", live)
	}
	if live.Expected == nil || *live.Expected != 20 || *live.ExpectedCredits != 11_000 {
		t.Errorf("the live row expects %v s and %v", live.Expected, live.ExpectedCredits)
	}
	if waiting.Expected != nil || waiting.ExpectedCredits != nil {
		t.Errorf("the waiting row expects %v s", *waiting.Expected)
	}
	if waiting.GPUType != "h100" || waiting.Node != nil || waiting.Progress != nil || waiting.Status != compute.StatusQueued {
		t.Errorf("waiting row is %+v", waiting)
	}
	w.ended(children[0], compute.StatusCompleted, compute.ReasonNone, 0, 20*time.Second)
	w.place(children[1], 1)
	w.begun(children[1])
	w.ended(children[1], compute.StatusFailed, compute.ReasonExitCode, 3, 10*time.Second)
	got = get()
	if got.Status != compute.StatusCompleted || *got.Recommendation != "gpu.a100" || len(got.Pareto) != 1 ||
		*got.Reason == "" || *got.Parent.Billed != 20_000 || got.Parent.HardwareProfile != "gpu_selection" {
		t.Errorf("ended selection is %+v", got)
	}
	won, lost := got.Rows[0], got.Rows[1]
	if *won.Duration != 20 || *won.Credits != 11_000 || *won.ReturnCode != 0 || !won.Pareto || *won.Score != 1.5 || *won.Progress != 1 {
		t.Errorf("winning row is %+v", won)
	}
	if *lost.ReturnCode != 3 || lost.Score != nil || lost.Pareto || *lost.Credits != 9_000 {
		t.Errorf("losing row is %+v", lost)
	}
	if won.Expected != nil || lost.Expected != nil {
		t.Error("what has ended is expected to end")
	}
	if len(won.Runs) != 1 || won.Runs[0].ExecutionID != children[0] || won.CreditsSpent != 11_000 ||
		*won.OutputTail != "BERTH_PROGRESS 1/4\nBERTH_PROGRESS 3/4\n" || *got.Confidence != 0.5 || got.Repeats != 1 || !got.EarlyStop {
		t.Errorf("ended selection is %+v", got)
	}
	a := w.mustDo("GET", path+"?format=svg", w.adaKey, nil, nil)
	if a.header.Get("Content-Type") != "image/svg+xml" || string(a.body) != "<svg>fastest of 2</svg>" {
		t.Errorf("the chart is %d %v %s", a.status, a.header, a.body)
	}
	w.wantCSV(path+"?format=csv", 2)
	w.want(422, "", "GET", path+"?format=png", w.adaKey, nil)

	var history wire.ExecutionHistory
	w.mustDo("GET", "/billing/history?parent="+parent.String(), w.adaKey, nil, &history)
	if len(history.Executions) != 2 || history.TotalExecutions != 3 || history.TotalCreditsSpent != 20_000 ||
		*history.Executions[0].ParentExecutionID != parent {
		t.Errorf("history is %+v", history)
	}
	// A sub-execution is streamed and looked at like any other.
	w.mustDo("GET", "/execution/streaming/"+children[0].String()+"/status", w.adaKey, nil, nil)
}

// wantCSV gets a table and wants so many lines behind its header, all of as
// many fields.
func (w *world) wantCSV(path string, lines int) {
	w.Helper()
	a := w.mustDo("GET", path, w.adaKey, nil, nil)
	if got := a.header.Get("Content-Type"); got != "text/csv; charset=utf-8" {
		w.Errorf("the table is %s", got)
	}
	rows, err := csv.NewReader(bytes.NewReader(a.body)).ReadAll()
	if err != nil || len(rows) != lines+1 {
		w.Fatalf("%d rows, %v:\n%s", len(rows), err, a.body)
	}
	first := map[string]string{}
	for i, name := range rows[0] {
		first[name] = rows[1][i]
	}
	for name, want := range map[string]string{
		"gpu_type": "a100", "status": "completed", "duration_s": "20", "credits": "0.011", "recommended": "true",
		"stopped_early": "false", "predicted_s": "", "return_code": "0", "node": "n2",
	} {
		if first[name] != want {
			w.Errorf("%s is %q, want %q", name, first[name], want)
		}
	}
}

func TestSelectionStartsWithItsOptions(t *testing.T) {
	w := newWorld(t)
	var started wire.SelectionStarted
	w.mustDo("POST", "/execution/gpu_selection/start", w.adaKey, map[string]any{
		"code": "print(1)", "repeats": 3, "deadline_seconds": 90, "early_stop": false,
	}, &started)
	var got wire.Selection
	w.mustDo("GET", "/execution/gpu_selection/"+started.ExecutionID.String(), w.adaKey, nil, &got)
	if got.Repeats != 3 || *got.Deadline != 90 || got.EarlyStop || len(got.Rows) != 0 {
		t.Errorf("got %+v", got)
	}
}

// TestSelectionOfRepeats holds how runs of one GPU type become one row.
func TestSelectionOfRepeats(t *testing.T) {
	w := newWorld(t)
	var started wire.SelectionStarted
	w.mustDo("POST", "/execution/gpu_selection/start", w.adaKey,
		map[string]any{"code": "print(1)", "repeats": 2, "gpu_types": []string{"a100"}}, &started)
	ids := []compute.ExecutionID{{UUID: uuid(511)}, {UUID: uuid(512)}}
	w.must(command.TakeSelection{Term: 1, Parent: started.ExecutionID, Children: []command.Child{
		{ID: ids[0], Profile: "gpu.a100", Repeat: 1}, {ID: ids[1], Profile: "gpu.a100", Repeat: 2},
	}})
	w.place(ids[0], 2)
	w.begun(ids[0])
	w.ended(ids[0], compute.StatusCompleted, compute.ReasonNone, 0, 20*time.Second)
	w.place(ids[1], 2)
	w.begun(ids[1])
	w.must(command.StopCandidates{Term: 1, Parent: started.ExecutionID, Stops: []compute.CandidateStop{{
		Execution: ids[1], Reason: compute.ReasonStoppedEarly, Detail: "=cannot win", Predicted: 90 * time.Second,
	}}})
	w.ended(ids[1], compute.StatusCancelled, compute.ReasonStopped, 143, 10*time.Second)
	var got wire.Selection
	w.mustDo("GET", "/execution/gpu_selection/"+started.ExecutionID.String(), w.adaKey, nil, &got)
	if len(got.Rows) != 1 || len(got.Rows[0].Runs) != 2 {
		t.Fatalf("got %+v", got)
	}
	row, second := got.Rows[0], got.Rows[0].Runs[1]
	if !row.StoppedEarly || *row.Detail != "=cannot win" || *row.Predicted != 90 || row.CreditsSpent != 16_500 ||
		*row.Duration != 20 || row.ExecutionID != ids[0] {
		t.Errorf("row is %+v", row)
	}
	if second.Status != compute.StatusCancelled || *second.StatusDetails != "stopped_early" || *second.Duration != 10 {
		t.Errorf("second run is %+v", second)
	}
	a := w.mustDo("GET", "/execution/gpu_selection/"+started.ExecutionID.String()+"?format=csv", w.adaKey, nil, nil)
	if !strings.HasSuffix(string(a.body), ",'=cannot win\n") {
		t.Errorf("a spreadsheet reads a formula:\n%s", a.body)
	}
}

// TestUnmeasuredGPUs holds that GPU values which nobody has measured are null, not
// zero, also those that a slice does not report.
func TestUnmeasuredGPUs(t *testing.T) {
	w := newWorld(t)
	parent, children := w.selected()
	finish := func(id compute.ExecutionID, node int, u compute.Usage) {
		w.place(id, node)
		w.begun(id)
		a := w.attempt(id)
		w.must(command.FinishAttempt{Node: a.Node, Outcome: compute.Outcome{
			Execution: id, Epoch: a.Epoch, Status: compute.StatusCompleted, Ran: true, Duration: time.Second, Usage: u,
		}})
	}
	finish(children[0], 2, compute.Usage{PeakMemoryMiB: 7})
	finish(children[1], 1, compute.Usage{GPUUtilPercent: compute.GPUUnknown, GPUMemoryMiB: 900})
	var got wire.Selection
	w.mustDo("GET", "/execution/gpu_selection/"+parent.String(), w.adaKey, nil, &got)
	if r := got.Rows[0]; r.GPUUtilPercent != nil || r.GPUMemoryMiB != nil || r.PowerWatt != nil || *r.PeakMemoryMiB != 7 {
		t.Errorf("an unmeasured row is %+v", r)
	}
	if r := got.Rows[1]; r.GPUUtilPercent != nil || *r.GPUMemoryMiB != 900 {
		t.Errorf("the row of a slice is %+v", r)
	}
	for i, want := range []string{`"gpu_memory_mib":null`, `"gpu_memory_mib":900`} {
		a := w.mustDo("GET", "/execution/"+children[i].String(), w.adaKey, nil, nil)
		if !strings.Contains(string(a.body), `"gpu_utilization_percent":null,`+want) {
			t.Errorf("the execution is %s", a.body)
		}
	}
}

func TestAbortSelection(t *testing.T) {
	w := newWorld(t)
	parent, children := w.selected()
	w.mustDo("POST", "/execution/gpu_selection/abort/"+parent.String(), w.adaKey, nil, nil)
	for _, id := range append(children, parent) {
		if e, _ := w.machine.View().AnyExecution(id); e.Status != compute.StatusAborted {
			t.Errorf("%s is %s", e.Profile, e.Status)
		}
	}
	got := w.events("/api/v1/stream/"+parent.String(), w.adaKey, 1)
	if len(got) != 1 {
		t.Errorf("events are %q", got)
	}
}

func TestSelectionNamesAProfile(t *testing.T) {
	w := newWorld(t)
	const path = "/execution/gpu_selection/start"
	for _, name := range []string{"execution_type", "machine_type"} {
		a := w.want(400, "unknown_profile", "POST", path, w.adaKey, map[string]any{"code": "1", name: "gpu.b200"})
		if !strings.Contains(string(a.body), "gpu.h100") {
			t.Errorf("the answer does not list the profiles: %s", a.body)
		}
		w.mustDo("POST", path, w.adaKey, map[string]any{"code": "1", name: "GPU.T4"}, nil)
	}
	both := map[string]any{"code": "1", "execution_type": "cpu", "machine_type": "gpu.t4"}
	a := w.want(422, "", "POST", path, w.adaKey, both)
	if got := strings.Join(faultsOf(t, a), ","); got != "body.machine_type: value_error" {
		t.Errorf("faults are %s", got)
	}
	both["machine_type"] = "CPU"
	w.mustDo("POST", path, w.adaKey, both, nil)
}

// TestDeletionAgainDeletesTheOutput holds that the repeat of a deletion removes
// the output, of sub-executions too: the first one may have ended before.
func TestDeletionAgainDeletesTheOutput(t *testing.T) {
	w := newWorld(t)
	parent, children := w.selected()
	w.complete(children[0], 2, 10*time.Second)
	w.complete(children[1], 1, 10*time.Second)
	for range 2 {
		w.logs.deleted = nil
		w.mustDo("DELETE", "/execution/"+parent.String(), w.adaKey, nil, nil, "Idempotency-Key", "k")
		if want := append([]compute.ExecutionID{parent}, children...); !slices.Equal(w.logs.deleted, want) {
			t.Errorf("deleted the output of %v, want %v", w.logs.deleted, want)
		}
	}
}
