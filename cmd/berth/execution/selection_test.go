package execution

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/compute"
)

// selection is an ended GPU selection.
const selection = `{
  "execution_id": "` + clitest.SomeID + `", "status": "completed", "objective": "balanced",
  "rows": [
    {"execution_id": "0198c0de-0000-7000-8000-00000000000a", "gpu_type": "a100", "hardware_profile": "gpu.a100", "status": "completed", "node": "n2", "duration_s": 10.1234, "credits": 0.005568, "return_code": 0},
    {"execution_id": "0198c0de-0000-7000-8000-00000000000b", "gpu_type": "h100", "hardware_profile": "gpu.h100", "status": "completed", "node": "n1", "duration_s": 6.01, "credits": 0.005409, "return_code": 0, "pareto": true},
    {"execution_id": "0198c0de-0000-7000-8000-00000000000c", "gpu_type": "l40s", "hardware_profile": "gpu.l40s", "status": "failed", "status_details": "out_of_memory", "node": "n1", "duration_s": 1.5, "credits": 0.0006, "return_code": 137},
    {"execution_id": "0198c0de-0000-7000-8000-00000000000d", "gpu_type": "t4", "hardware_profile": "gpu.t4", "status": "aborted", "status_details": "parent_ended"},
    {"execution_id": "0198c0de-0000-7000-8000-00000000000e", "gpu_type": "l4", "hardware_profile": "gpu.l4", "status": "cancelled", "status_details": "stopped_early", "stopped_early": true, "detail": "at 34 % after 8.2 s: it would take at least 21.0 s and 0.0042 credits, h100 took 6.0 s and 0.005409", "predicted_s": 21, "node": "n3", "duration_s": 8.2, "credits": 0.00164, "return_code": 143},
    {"execution_id": "0198c0de-0000-7000-8000-00000000000f", "gpu_type": "b200", "hardware_profile": "gpu.b200", "status": "cancelled", "status_details": "no_capacity", "detail": "no capacity within 1m0s (gpus_busy)"}
  ],
  "recommendation": "gpu.h100", "confidence": 0.987,
  "reason": "It is the fastest and costs least."
}`

func TestPrintSelection(t *testing.T) {
	var s wire.Selection
	if err := json.Unmarshal([]byte(selection), &s); err != nil {
		t.Fatal(err)
	}
	none := s
	none.Recommendation, none.Reason, none.Rows, none.Confidence = nil, nil, nil, nil
	for name, s := range map[string]wire.Selection{"selection": s, "selection_none": none} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := PrintSelection(&got, s); err != nil {
				t.Fatal(err)
			}
			clitest.CheckGolden(t, name, got.String())
		})
	}
}

func TestLines(t *testing.T) {
	var got strings.Builder
	view := &lines{w: &got, shown: map[string]string{}}
	t4 := candidate{gpuType: "t4", status: compute.StatusQueued}
	view.update([]candidate{t4})
	t4.status, t4.node = compute.StatusRunning, "n3"
	for _, p := range []float64{0.1, 0.3, 0.4, 0.76} {
		t4.progress = p
		view.update([]candidate{t4})
	}
	t4.status = compute.StatusCompleted
	view.update([]candidate{t4})
	want := "  t4     queued\n  t4     running on n3\n  t4     running on n3, 25%\n" +
		"  t4     running on n3, 75%\n  t4     completed on n3\n"
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
}

// TestBarsEnd checks that bars end with the selection, whatever the results of
// its candidates.
func TestBarsEnd(t *testing.T) {
	var out bytes.Buffer
	view := newBars(&out)
	view.update([]candidate{{gpuType: "t4", status: compute.StatusRunning, progress: 0.5}})
	view.update([]candidate{{gpuType: "t4", status: compute.StatusFailed, progress: 0.5}})
	view.close()
	if !strings.Contains(out.String(), "t4") {
		t.Errorf("got %q, want the GPU type", out.String())
	}
}

func TestRecommend(t *testing.T) {
	var sent map[string]any
	failed := strings.NewReplacer(`"status": "completed", "objective"`, `"status": "failed", "objective"`,
		`"return_code": 0`, `"return_code": 3`, `"return_code": 137`, `"return_code": 3`,
		`"status_details": "parent_ended"`, `"return_code": 3`).Replace(selection)
	body := selection
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"POST " + clitest.APIRoot + "/execution/gpu_selection/start": clitest.RecordSent(t, &sent, `{"execution_id":"`+clitest.SomeID+`","status":"pending"}`),
		"GET " + clitest.APIRoot + "/execution/gpu_selection/" + clitest.SomeID: func(w http.ResponseWriter, r *http.Request) {
			clitest.Answer(body)(w, r)
		},
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID: clitest.Answer(`{"execution_id":"` + clitest.SomeID + `","status":"failed"}`),
		"GET /api/v1/stream/": clitest.Answer("id: 1\ndata: {\"output\":{\"content\":\"BERTH_PROGRESS 1/2\\n\"}}\n\n" +
			"id: 2\ndata: {\"jobFinished\":{\"job\":{\"result\":{\"returnCode\":\"0\"}}}}\n\n"),
	})
	r := execute(t, "", "gpu", "recommend", "-c", "1", "--objective", "cheapest", "--gpu-types", "t4,h100")
	if r.Code != 0 || !strings.Contains(r.Out, "Recommended (balanced): gpu.h100") || !strings.Contains(r.Errors, "h100   completed on n1") {
		t.Errorf("got %+v", r)
	}
	if sent["objective"] != "cheapest" || len(sent["gpu_types"].([]any)) != 2 || sent["repeats"] != nil ||
		sent["deadline_seconds"] != nil || sent["early_stop"] != nil {
		t.Errorf("sent %v", sent)
	}
	r = execute(t, "", "gpu", "recommend", "-c", "1", "--repeats", "3", "--deadline", "90s", "--no-early-stop", "--format", "csv")
	if r.Code != 0 || !strings.Contains(r.Out, `"objective": "balanced"`) {
		t.Errorf("got %+v, want the answer as it is", r)
	}
	if sent["repeats"] != 3.0 || sent["deadline_seconds"] != 90.0 || sent["early_stop"] != false {
		t.Errorf("sent %v", sent)
	}
	for _, flags := range [][]string{{"--max-credits="}, {"--format", "png"}, {"--repeats", "0"}, {"--repeats", "6"}, {"--deadline", "10ms"}, {"--json", "--format", "svg"}} {
		if r := execute(t, "", append([]string{"gpu", "recommend", "-c", "1"}, flags...)...); r.Code != cli.ExitUsage || r.Errors == "" {
			t.Errorf("%v: got %+v, want a wrong command line", flags, r)
		}
	}
	body = failed
	if r := execute(t, "", "gpu", "recommend", "-c", "1"); r.Code != 3 {
		t.Errorf("got exit code %d, want the one of every type", r.Code)
	}
}
