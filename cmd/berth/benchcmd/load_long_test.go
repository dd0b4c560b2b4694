//go:build long

package benchcmd

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"berth/bench/load"
	"berth/cmd/berth/clitest"
	"berth/node/executor/docker/dockertest"
)

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
	var idle load.Idle
	measure(&idle, "idle", "--settle", "1s", "--window", "1s", "--json")
	if len(idle.Nodes) != 3 || idle.Nodes[idle.Leader] > idle.Together || idle.Reference != load.IdleLimit {
		t.Errorf("idle: %+v", idle)
	}
	var r load.Inference
	measure(&r, "inference", "--for", "1s", "--streams", "8", "--open", "40", "--conversations", "20", "--json", "--crowd", "50",
		"--llama", "../../../bin/engines/llama-node")
	if r.Direct.PerSecond <= 0 || r.Own.PerSecond <= 0 || r.Hop.First.P50MS <= 0 || r.Open.WithMiB <= 0 || r.Llama == nil ||
		r.Llama.RoutedPS <= 0 || r.Affinity.Hits <= r.Affinity.Random || r.Turns.Ratio <= 0 || r.Step.Failed > 0 || r.Step.ScaledMS <= 0 {
		t.Errorf("inference: %+v", r)
	}
	var executions load.Executions
	measure(&executions, "executions", "--alone", "2", "--many", "4", "--clients", "2", "--waiting", "20", "--output", "1", "--json",
		"--image", dockertest.Probe(t), "--command", "print,hi")
	if o := executions.Output; o.Disk <= 0 || o.Follower <= 0 || o.Pipe <= 0 || executions.Packages == nil ||
		executions.Packages.With.P50MS <= 0 || executions.Containers == nil || executions.Containers.Ratio <= 0 {
		t.Errorf("output, packages and containers: %+v", executions)
	}
	if b := executions.Backlog; b.Waiting != 20 || b.Ratio <= 0 || b.Alone.P50MS <= 0 || b.SubmitCPU <= 0 {
		t.Errorf("behind a queue: %+v", b)
	}
	if executions.Ratio <= 0 || executions.PerSecond <= 0 || executions.Alone.P50MS <= 0 || executions.Paused.P50MS <= 0 || executions.CPUMS <= 0 ||
		executions.AlonePS <= 0 {
		t.Errorf("executions: %+v", executions)
	}
	var mounts load.Mounts
	measure(&mounts, "executions", "--foreign-mounts", "100", "--alone", "1", "--many", "2", "--clients", "1", "--json")
	if len(mounts.With) != 2 || len(mounts.Without) != 2 || mounts.Ratio <= 0 || mounts.CPU <= 0 {
		t.Errorf("beside mounts: %+v", mounts)
	}
	var requests load.Requests
	measure(&requests, "api", "--submits", "40", "--clients", "8", "--readers", "4", "--read-for", "1s", "--json")
	if requests.Ratio <= 0 || requests.SubmitsPS <= 0 || requests.BareRaftPS <= 0 ||
		requests.Linearizable.PerSecond <= 0 || requests.Stale.PerSecond <= 0 || requests.Whole.PerSecond <= 0 {
		t.Errorf("requests: %+v", requests)
	}
	var sweep load.Sweep
	measure(&sweep, "api", "--submits", "40", "--read-for", "1s", "--sweep", "1,8", "--json")
	if len(sweep.Levels) != 2 {
		t.Fatalf("sweep: %+v", sweep)
	}
	for _, l := range sweep.Levels {
		for _, a := range []load.Asked{l.Submits, l.Linearizable, l.Stale, l.Unknown, l.Invalid} {
			if a.PerSecond <= 0 || a.Allocs <= 0 || a.P50MS <= 0 {
				t.Errorf("sweep: %+v", l)
			}
		}
		if l.Bare.PerSecond <= 0 {
			t.Errorf("sweep: %+v", l)
		}
	}
}
