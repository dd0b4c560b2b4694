//go:build long

package sweep_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"berth/bench/faults/sweep"
	"berth/bench/faults/world"
	"berth/fault"
)

var (
	seedFlag   = flag.Uint64("sweep.seed", 0, "choose points by this seed")
	pointsFlag = flag.Int("sweep.points", len(fault.Points()), "try so many points")
)

// TestSweep kills nodes at every failpoint, or at the number of them that
// -sweep.points gives.
func TestSweep(t *testing.T) {
	binary := mustBuild(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	points := sweep.Sample(seed, *pointsFlag)
	report, err := sweep.Run(t.Context(), sweep.Config{
		Dir: t.TempDir(), Binary: binary, Points: points, Exits: true, Progress: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Violations {
		t.Error(v)
	}
	if len(report.Results) != len(points) || report.Submits == 0 || report.Starts == 0 {
		t.Errorf("%d of %d points were tried, with %d submits and %d starts",
			len(report.Results), len(points), report.Submits, report.Starts)
	}
	t.Logf("%d points in %v", len(report.Results), time.Duration(report.Seconds*float64(time.Second)))
}

// mustBuild returns a program with failpoints. It skips the test on machines
// that cannot run a world.
func mustBuild(t *testing.T) string {
	t.Helper()
	switch {
	case testing.Short():
		t.Skip("builds a program and breaks a cluster of processes")
	case os.Geteuid() != 0:
		t.Skip("it takes root to make networks and disks")
	case len(world.Missing()) > 0:
		t.Skipf("not installed: %v", world.Missing())
	}
	binary := filepath.Join(t.TempDir(), "berth")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", "faults", "-o", binary, "berth/cmd/berth")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}
