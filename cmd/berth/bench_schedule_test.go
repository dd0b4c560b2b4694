package main

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
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 {
		t.Fatalf("exit code %d, %s%s: %v", r.code, r.out, r.errors, err)
	}
	for _, key := range []string{"placements_per_s", "bare_raft_per_s", "latency", "memory", "published"} {
		if _, ok := got[key]; !ok {
			t.Errorf("no %q in %s", key, r.out)
		}
	}
	if !strings.Contains(r.errors, "berth: 5 of 6: latency") {
		t.Errorf("no progress: %s", r.errors)
	}
	r = execute(t, "", args...)
	for _, want := range []string{"CraneSched (published)", "bare Raft entries", "60 of 60", "submit to placement", "8 nodes with 64 GPUs"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s%s", want, r.out, r.errors)
		}
	}
	r = execute(t, "", "bench", "schedule", "--nodes", "0", "--rate", "-1")
	if r.code != cli.ExitUsage || !strings.Contains(r.errors, "nodes: 0 is not 1 to 19000") || !strings.Contains(r.errors, "rate: -1") {
		t.Errorf("exit code %d, %s", r.code, r.errors)
	}
}
