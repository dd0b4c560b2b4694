package benchcmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"berth/bench/load"
	"berth/cmd/berth/cli"
	"berth/cmd/berth/clitest"
	"berth/testsize"
)

func TestBenchLoadRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"idle --window 0s":        "--window 1s or more",
		"executions --alone 0":    "must be 1 or more",
		"executions --waiting -1": "--waiting 0 or more",
		"api --submits 0":         "must be 1 or more",
		"api --read-for 10ms":     "--read-for 1s or more",
		"executions --clients x":  "invalid argument",
		"inference --turns 1":     "--turns 2 or more",
	} {
		r := execute(t, "", append([]string{"bench"}, strings.Fields(args)...)...)
		if r.Code != cli.ExitUsage || !strings.Contains(r.Errors, want) {
			t.Errorf("%s: exit code %d, %s", args, r.Code, r.Errors)
		}
	}
}

// TestBenchLoad measures small amounts with the real program.
func TestBenchLoad(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, as executions are put into sandboxes")
	}
	program := clitest.MustBuild(t, t.TempDir())
	measure := func(into any, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"bench"}, args...)...)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := json.Unmarshal(out, into); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
	}
	if testsize.Long { // A cluster of its own, for one figure.
		var idle load.Idle
		measure(&idle, "idle", "--settle", "1s", "--window", "1s", "--json")
		if len(idle.Nodes) != 3 || idle.Nodes[idle.Leader] > idle.Together || idle.Reference != load.IdleLimit {
			t.Errorf("idle: %+v", idle)
		}
	}
	if testsize.Long { // So too.
		var r load.Inference
		measure(&r, "inference", "--for", "1s", "--streams", "8", "--open", "40", "--conversations", "20", "--json",
			"--llama", "../../../bin/engines/llama-node")
		if r.Direct.PerSecond <= 0 || r.Own.PerSecond <= 0 || r.Hop.First.P50MS <= 0 || r.Open.WithMiB <= 0 || r.Llama == nil ||
			r.Llama.RoutedPS <= 0 || r.Affinity.Hits <= r.Affinity.Random {
			t.Errorf("inference: %+v", r)
		}
	}
	var executions load.Executions
	measure(&executions, "executions", "--alone", "2", "--many", "4", "--clients", "2", "--waiting", "20", "--json")
	if b := executions.Backlog; b.Waiting != 20 || b.Ratio <= 0 || b.Alone.P50MS <= 0 || b.SubmitCPU <= 0 {
		t.Errorf("behind a queue: %+v", b)
	}
	if executions.Ratio <= 0 || executions.PerSecond <= 0 || executions.Alone.P50MS <= 0 || executions.CPUMS <= 0 {
		t.Errorf("executions: %+v", executions)
	}
	var requests load.Requests
	measure(&requests, "api", "--submits", "40", "--clients", "8", "--readers", "4", "--read-for", "1s", "--json")
	if requests.Ratio <= 0 || requests.SubmitsPS <= 0 || requests.BareRaftPS <= 0 ||
		requests.Linearizable.PerSecond <= 0 || requests.Stale.PerSecond <= 0 || requests.Whole.PerSecond <= 0 {
		t.Errorf("requests: %+v", requests)
	}
}
