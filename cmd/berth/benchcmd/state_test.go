package benchcmd

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/bench/state"
	"berth/cmd/berth/cli"
)

func TestBenchState(t *testing.T) {
	r := execute(t, "", "bench", "state", "--executions", "300", "--json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || r.Code != 0 {
		t.Fatalf("exit code %d, %s%s: %v", r.Code, r.Out, r.Errors, err)
	}
	for _, key := range []string{
		"bytes_per_finished", "restored_bytes_per_finished", "snapshot_bytes", "restore_s", "backup_read_s",
	} {
		if value, _ := got[key].(float64); value <= 0 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	r = execute(t, "", "bench", "state", "--executions", "20")
	for _, want := range []string{
		"memory of a finished execution", "1024 B", "restore of the snapshot", "20 finished executions",
	} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in\n%s%s", want, r.Out, r.Errors)
		}
	}
	r = execute(t, "", "bench", "state", "--executions", "0")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, "executions: 0 is not 1 to 10000000") {
		t.Errorf("exit code %d, %s", r.Code, r.Errors)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	r = execute(t, "", "bench", "state", "--executions", "20", "--dir", missing, "--json")
	var partial state.Report
	err := json.Unmarshal([]byte(r.Out), &partial)
	want := []string{state.StepHistory, state.StepEntries}
	if err != nil || !slices.Equal(partial.Steps, want) || r.Code == 0 {
		t.Errorf("exit code %d, steps %v, want %v and an error: %v", r.Code, partial.Steps, want, err)
	}
	r = execute(t, "", "bench", "state", "--executions", "20", "--dir", missing)
	if !strings.Contains(r.Out, "executions applied") || strings.Contains(r.Out, "snapshot written") {
		t.Errorf("what was done before the error:\n%s", r.Out)
	}
}

func TestBenchStateOfANode(t *testing.T) {
	r := state.Report{Steps: []string{state.StepNode, state.StepRestart}, Node: &state.NodeReport{
		RestartS: 9.25, Writes: state.Writes{
			Requests: 30, LastedS: 63, Behind: 20, Snapshots: 1, SnapshotS: 3,
			InSnapshot: state.Asked{Requests: 10, Late: state.Spread{P50MS: 4, P99MS: 8, MaxMS: 9}},
			Otherwise:  state.Asked{Requests: 20, Late: state.Spread{P50MS: 1, P99MS: 2, MaxMS: 3}},
		},
	}}
	var out strings.Builder
	if err := printState(&out, &r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"9.25 s", "p50 4.0, p99 8.0, max 9 ms of 10; 1 in 3.00 s", "max 3 ms of 20; in 60 s"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "entries behind") {
		t.Errorf("a restart that was not tried:\n%s", out.String())
	}
}
