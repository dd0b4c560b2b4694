//go:build long

package benchcmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"berth/bench/workers"
	"berth/cmd/berth/clitest"
)

// TestBenchWorkers measures three workers with the real program.
func TestBenchWorkers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as executions are put into sandboxes")
	}
	cmd := exec.CommandContext(t.Context(), clitest.MustBuild(t, t.TempDir()), "bench", "workers",
		"--workers", "3", "--calm", "1s", "--json")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got workers.Report
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if got.Completed != 3 || got.Executed != 3 || got.WorkerMiB <= 0 || got.ServerCPU <= 0 || got.MostDown != 0 {
		t.Errorf("got %+v", got)
	}
}
