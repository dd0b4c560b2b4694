package executor_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
)

const (
	startRounds = 10 // Attempts to find a quiet moment on a busy machine.
	startsEach  = 25
	startRatio  = 2.0
)

// firstStatement prints the time at which the code began, in Unix nanoseconds.
const firstStatement = "import time; print(time.time_ns())"

// TestStartCostsLittle compares the time from an execution's placement to its
// first statement with that of the interpreter alone. Both are timed in turn. The
// shortest times count, because other load on the machine disturbed them least.
// The supervisor runs from a separately built program, so that the race detector
// does not slow it. A busy machine slows both, so the test compares their ratio.
func TestStartCostsLittle(t *testing.T) {
	berth := filepath.Join(t.TempDir(), "berth")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", berth, "berth/cmd/berth")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	python, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable, end='')").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, func(c *executor.Config) { c.Program = berth })
	var ratio float64
	for range startRounds {
		bare, boxed := startTimes(t, n, string(python))
		ratio = float64(boxed) / float64(bare)
		t.Logf("the interpreter alone %v, an execution %v: %.2f times", bare, boxed, ratio)
		if ratio <= startRatio {
			return
		}
	}
	t.Errorf("an execution begins after %.2f times the interpreter's time, want at most %.1f", ratio, startRatio)
}

// startTimes returns the shortest times of the interpreter and of the execution.
func startTimes(t *testing.T, n *node, python string) (bare, boxed time.Duration) {
	t.Helper()
	bare, boxed = time.Hour, time.Hour
	for range startsEach {
		start := time.Now()
		out, err := exec.CommandContext(t.Context(), python, "-u", "-c", firstStatement).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		bare = min(bare, began(t, string(out)).Sub(start))
		start = time.Now()
		_, output := n.execute(compute.Bundle{Code: firstStatement}, nil)
		boxed = min(boxed, began(t, output).Sub(start))
	}
	return bare, boxed
}

// began parses the output of firstStatement.
func began(t *testing.T, output string) time.Time {
	t.Helper()
	ns, err := strconv.ParseInt(strings.TrimSpace(output), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return time.Unix(0, ns)
}
