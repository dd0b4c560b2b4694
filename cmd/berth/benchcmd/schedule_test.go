package benchcmd

import (
	"encoding/json"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
)

func TestBenchSchedule(t *testing.T) {
	args := []string{"bench", "schedule", "--nodes", "8", "--queued", "60", "--steady", "200ms", "--rate", "50"}
	r := execute(t, "", append(args, "--json")...)
	var got map[string]any
	if err := json.Unmarshal([]byte(r.Out), &got); err != nil || r.Code != 0 {
		t.Fatalf("exit code %d, %s%s: %v", r.Code, r.Out, r.Errors, err)
	}
	for _, key := range []string{"placements_per_s", "bare_raft_per_s", "latency", "memory", "published"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %q in %s", key, r.Out)
		}
	}
	if !strings.Contains(r.Errors, "berth: 5 of 6: latency") {
		t.Errorf("no progress: %s", r.Errors)
	}
	r = execute(t, "", args...)
	for _, want := range []string{"CraneSched (published)", "bare Raft entries", "60 of 60", "submit to placement", "8 nodes with 64 GPUs"} {
		if !strings.Contains(r.Out, want) {
			t.Errorf("no %q in\n%s%s", want, r.Out, r.Errors)
		}
	}
	r = execute(t, "", "bench", "schedule", "--nodes", "0", "--rate", "-1")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, "nodes: 0 is not 1 to 19000") || !strings.Contains(r.Errors, "rate: -1") {
		t.Errorf("exit code %d, %s", r.Code, r.Errors)
	}
}
