//go:build long

package faults_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/bench/faults"
	"berth/bench/faults/world"
)

// mustBuild builds the program that is put under faults. It skips the test where the
// machine cannot have them.
func mustBuild(t *testing.T) (binary string) {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("it makes networks and disks, which takes root and minutes")
	}
	if missing := world.Missing(); len(missing) > 0 {
		t.Skip("not installed: " + strings.Join(missing, ", "))
	}
	binary = filepath.Join(t.TempDir(), "berth")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "berth/cmd/berth")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// TestClusterUnderFaults is a short run of all nemeses and workloads with its
// own seed. make faults runs them for longer.
func TestClusterUnderFaults(t *testing.T) {
	binary := mustBuild(t)
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
