package inspect

import (
	"net/http"
	"strings"
	"testing"

	"berth/cmd/berth/clitest"
	"berth/compute"
)

// TestEveryReasonIsExplained checks that berth explain has a text for every
// reason of a wait or an end.
func TestEveryReasonIsExplained(t *testing.T) {
	texts := reasonTexts()
	for r := compute.ReasonNone + 1; int(r) < compute.Reasons; r++ {
		name := r.String()
		text := texts[name]
		delete(texts, name)
		if text == "" {
			t.Errorf("%s is not explained", name)
			continue
		}
		clitest.MustCluster(t, map[string]http.HandlerFunc{
			"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID + "/explain": clitest.Answer(
				`{"execution_id":"` + clitest.SomeID + `","status":"queued","reason":"` + name + `"}`),
		})
		got := execute(t, "", "explain", clitest.SomeID)
		if got.Code != 0 || !strings.Contains(got.Out, "reason      "+name+": "+text+"\n") {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	for name := range texts {
		t.Errorf("%s is explained, and no reason", name)
	}
}

// queuedExplanation explains a queued execution and has every field.
const queuedExplanation = `{
  "execution_id": "` + clitest.SomeID + `", "status": "queued", "reason": "gpus_busy", "index": 7,
  "position": 2, "queued": 5, "nodes": 4, "nodes_fit": 0, "refused": {"gpus_busy": 3, "nodes_down": 1},
  "ahead": {"executions": 1, "gpus": 2.5, "own_executions": 1, "own_gpus": 2.5, "types": [], "own": []},
  "concurrency": {"used": 3, "limit": 4},
  "estimate": {"p50_s": 61.4, "p90_s": 125, "samples": 12,
    "p50_at": "2026-01-02T03:04:05Z", "p90_at": "2026-01-02T03:05:05Z",
    "calibration": {"estimates": 40, "p50_coverage": 0.5, "p90_coverage": 0.925, "p50_scale": 1, "p90_scale": 1.1}},
  "defragmentation": {"node": "n1", "price": 0.25, "exact": true, "moves": [
    {"execution_id": null, "from": "n1", "to": "n2", "lost_s": 90, "price": 0.25}]}
}`

const placedExplanation = `{
  "execution_id": "` + clitest.SomeID + `", "status": "running", "reason": null, "index": 9, "nodes": 4, "nodes_fit": 0, "refused": {},
  "placement": {"attempt": 1, "node": "n1", "index": 8, "view_index": 7, "score": 3, "runner_up": "n2", "runner_up_score": 5}
}`

func TestExplainIsPrinted(t *testing.T) {
	for name, body := range map[string]string{"explain_queued": queuedExplanation, "explain_placed": placedExplanation} {
		t.Run(name, func(t *testing.T) {
			clitest.MustCluster(t, map[string]http.HandlerFunc{
				"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID + "/explain": clitest.Answer(body),
			})
			r := execute(t, "", "explain", clitest.SomeID, "--defrag")
			if r.Code != 0 {
				t.Fatalf("got %+v", r)
			}
			clitest.CheckGolden(t, name, r.Out)
		})
	}
}

// TestExplainTheBrake checks that berth explain names the operator's options.
func TestExplainTheBrake(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID + "/explain": clitest.Answer(`{"execution_id":"` + clitest.SomeID + `","status":"running",
  "reason":"node_unreachable","brake":{"node":"gpu-1","down_at":"2026-07-01T12:00:00Z","since":"2026-07-01T12:00:00Z","vanished":2,"up":1}}`),
	})
	r := execute(t, "", "explain", clitest.SomeID)
	for _, want := range []string{"gpu-1 is down since 2026-07-01T12:00:00", "2 nodes vanished at once (1 are heard)", "berth admin brake release"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
}

// TestExplainBackOff checks that berth explain says why a replica of a deployment does not
// run, and when the next one starts.
func TestExplainBackOff(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID + "/explain": clitest.Answer(`{"execution_id":"` + clitest.SomeID + `",
  "status":"running","reason":null,"replicas":[{"number":1,"execution_id":"` + otherID + `","status":"failed",
  "status_details":"exit_code","detail":"exit code 3","ready":false,"node":null,"restarts":1,"crashes":1,"next_start":"2026-01-01T00:00:10Z"}]}`),
	})
	r := execute(t, "", "explain", clitest.SomeID)
	if r.Code != 0 || !strings.Contains(r.Out, "replica 1 ended as failed (exit_code) and starts again at ") {
		t.Errorf("got %+v", r)
	}
}

// TestExplainFailedDeployment checks that berth explain says why a deployment has failed, with
// the last lines of its engine.
func TestExplainFailedDeployment(t *testing.T) {
	clitest.MustCluster(t, map[string]http.HandlerFunc{
		"GET " + clitest.APIRoot + "/execution/" + clitest.SomeID + "/explain": clitest.Answer(`{"execution_id":"` + clitest.SomeID + `",
  "status":"running","reason":null,"detail":"its engine has ended 5 times in a row","replicas":[],"engine_output":["loads","bad magic"]}`),
	})
	r := execute(t, "", "explain", clitest.SomeID)
	for _, want := range []string{"detail", "its engine has ended 5 times in a row", "engine", "loads", "bad magic"} {
		if r.Code != 0 || !strings.Contains(r.Out, want) {
			t.Errorf("got %+v without %q", r, want)
		}
	}
}
