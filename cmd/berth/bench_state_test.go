package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBenchState(t *testing.T) {
	r := execute(t, "", "bench", "state", "--executions", "300", "--json")
	var got map[string]any
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 0 {
		t.Fatalf("exit code %d, %s%s: %v", r.code, r.out, r.errors, err)
	}
	for _, key := range []string{
		"bytes_per_finished", "restored_bytes_per_finished", "snapshot_bytes", "restore_s", "backup_read_s",
	} {
		if value, _ := got[key].(float64); value <= 0 {
			t.Errorf("%s is %v", key, got[key])
		}
	}
	r = execute(t, "", "bench", "state", "--executions", "20")
	for _, want := range []string{"memory of a finished execution", "1024 B", "restore of the snapshot", "20 finished executions"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s%s", want, r.out, r.errors)
		}
	}
	r = execute(t, "", "bench", "state", "--executions", "0")
	if r.code != exitUsage || !strings.Contains(r.errors, "executions: 0 is not 1 to 10000000") {
		t.Errorf("exit code %d, %s", r.code, r.errors)
	}
}
