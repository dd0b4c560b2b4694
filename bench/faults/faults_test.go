package faults_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/bench/faults"
	"berth/bench/faults/check"
	"berth/bench/faults/world"
	"berth/fault"
)

// TestClusterUnderFaults is a short run of everything with a seed of its own:
// what make faults does for longer.
func TestClusterUnderFaults(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("it makes networks and disks, which takes root and two minutes")
	}
	if missing := world.Missing(); len(missing) > 0 {
		t.Skip("not installed: " + strings.Join(missing, ", "))
	}
	binary := filepath.Join(t.TempDir(), "berth")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "berth/cmd/berth")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cfg := faults.Config{
		Seed: uint64(rand.Uint32()), Duration: 100 * time.Second, Nodes: 3, Binary: binary,
		Dir: filepath.Join(t.TempDir(), "run"), Slow: 3, Progress: t.Output(),
	}
	t.Logf("seed %d", cfg.Seed)
	report, err := faults.Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("seed %d: %v", cfg.Seed, err)
	}
	for _, v := range report.Violations {
		t.Errorf("seed %d: %v", cfg.Seed, v)
	}
	if len(report.Faults) == 0 || report.Operations() < 100 || report.Objects == 0 || report.States == 0 {
		t.Errorf("seed %d: %d faults, %d operations, %d objects, %d states compared: too few to mean anything",
			cfg.Seed, len(report.Faults), report.Operations(), report.Objects, report.States)
	}
}

func TestConfigRefuses(t *testing.T) {
	good := faults.Config{Duration: time.Minute, Nodes: 3, Binary: "berth", Dir: "x"}
	tests := []struct {
		name   string
		change func(*faults.Config)
		want   string
	}{
		{"nemesis", func(c *faults.Config) { c.Nemeses = []string{"locusts"} }, `nothing is broken by "locusts"; there are all-kill`},
		{"workload", func(c *faults.Config) { c.Workloads = []string{"play"} }, `no workload "play"; there are account, keys`},
		{"points", func(c *faults.Config) { c.Nemeses = []string{"clock"} }, `"clock" needs a program with failpoints`},
		{"plant", func(c *faults.Config) { c.Plant = "map-order" }, "a planted bug needs a program with failpoints"},
		{"nodes", func(c *faults.Config) { c.Nodes = 2 }, "nodes: 2 is not 3 to 9"},
		{"hold", func(c *faults.Config) { c.Hold = c.Duration + 1 }, "hold: "},
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, tt := range tests {
		c := good
		tt.change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestControlsAreOfThisProgram holds that what controls name exists.
func TestControlsAreOfThisProgram(t *testing.T) {
	known := map[fault.Bug]bool{}
	for _, p := range fault.Plants() {
		known[p.Bug] = true
	}
	for _, c := range faults.Controls() {
		if !known[c.Bug] {
			t.Errorf("there is no bug %q", c.Bug)
		}
		for _, name := range c.Nemeses {
			if !slices.Contains(faults.Nemeses(), name) {
				t.Errorf("%s: there is no nemesis %q", c.Bug, name)
			}
		}
		for _, name := range c.Workloads {
			if !slices.Contains(faults.Workloads(), name) {
				t.Errorf("%s: there is no workload %q", c.Bug, name)
			}
		}
	}
}

func TestSum(t *testing.T) {
	report := func(write float64, wrong ...check.Violation) faults.Report {
		return faults.Report{
			Seconds: 60, Objects: 5, Executions: 7, Starts: 6, Violations: wrong,
			Faults: []faults.Fault{{Nemesis: "leader-kill", Held: 3, Write: write, Whole: 2, Elections: 1}},
			Cells: []faults.Cell{
				{Nemesis: "leader-kill", Workload: "register", Counts: faults.Counts{Done: 3, Unknown: 1}},
				{Nemesis: "none", Workload: "register", Counts: faults.Counts{Done: 10, Refused: 1, Unsent: 1}},
			},
		}
	}
	got := faults.Sum([]faults.Report{report(0.5), report(1.5, check.Violation{What: "lost"})})
	if got.Runs != 2 || got.Faults != 2 || got.Operations != 32 || got.Objects != 10 || len(got.Violations) != 1 {
		t.Errorf("got %+v", got)
	}
	row := got.Rows[0]
	if row.Nemesis != "leader-kill" || row.Times != 2 || row.Held != 6*time.Second || row.Elections != 2 ||
		row.Unknown != 2 || row.Workloads["register"] != 8 || row.WriteP50 != 1500*time.Millisecond || row.WholeP99 != 2*time.Second {
		t.Errorf("got %+v", row)
	}
}
