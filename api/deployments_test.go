package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"berth/api"
	"berth/api/wire"
	"berth/compute"
)

// TestModelsThatFitNoGPU refuses deployments of models that are too large for the GPUs
// of each replica, and names those that would do. Each GPU of the test has 80 GiB.
func TestModelsThatFitNoGPU(t *testing.T) {
	const gib = 1 << 30
	sizes := map[string]int64{
		"a/small": 10 * gib, "a/full": 72 * gib, "a/two": 100 * gib, "a/huge": 2000 * gib,
	}
	var token string
	w := newWorld(t, func(c *api.Config) {
		c.Inference.Size = func(_ context.Context, _ compute.OrgID, _, model, given string) (int64, bool) {
			token = given
			size, known := sizes[model]
			return size, known
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
		{"a/huge", "big", 4, "--quantization fp8", ""},
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
