package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/prepare"
)

// nuisanceMilli is the CPU quota of each nuisance, in thousandths of a core.
const nuisanceMilli = 250

// steady prints a tick every 100 ms until the file of the test appears.
const steady = `
import os, time
i = 0
while not os.path.exists("/mnt/control/end"):
    print("tick", i)
    i += 1
    time.sleep(0.1)
print("end", i)
`

// nuisances exhaust a resource forever. Each prints its sign once it has reached
// its limit.
var nuisances = []struct{ name, code, sign string }{
	{"fork bomb", `
import os, sys
reported = False
while True:
    try:
        os.fork()
    except OSError as e:
        if not reported:
            os.write(1, b"bombed %s\n" % type(e).__name__.encode())
            reported = True
`, "bombed BlockingIOError"},
	{"memory hog", `
import os
while True:
    if os.fork() == 0:
        x = []
        while True:
            x.append(bytearray(b"x") * (1 << 20))
    if os.wait()[1] == 9:
        print("killed")
`, "killed"},
	{"output flood", `
import os
line = b"x" * 1023 + b"\n"
while True:
    os.write(1, line * 1024)
`, "xxxxxxxxxxxxxxxx"},
}

// TestNothingDisturbsANeighbour runs nuisances next to a steady execution. The
// output of that execution must be complete and in order, and the node must
// still start other executions.
func TestNothingDisturbsANeighbour(t *testing.T) {
	control := t.TempDir()
	n := newNode(t, func(c *executor.Config) {
		c.Mounts = []prepare.Mount{{Name: "control", Path: control, ReadOnly: true, Always: true}}
	})
	neighbour := n.place(n.endless(steady))
	await(t, "the first tick", func() bool { return strings.Contains(n.output(neighbour), "tick 0\n") })
	var bad []compute.ExecutionID
	defer func() { n.stopHard(bad) }() // Even if the test fails, because nothing else ends them.
	for _, nuisance := range nuisances {
		w := n.endless(nuisance.code)
		// Together less than a core, because the test is not about how the
		// machine shares its cores.
		w.Execution.Request.VCPUMilli = nuisanceMilli
		bad = append(bad, n.place(w))
	}
	for i, nuisance := range nuisances {
		await(t, nuisance.name, func() bool { return strings.Contains(n.output(bad[i]), nuisance.sign) })
	}
	ticks := strings.Count(n.output(neighbour), "tick")
	await(t, "another second of the neighbour", func() bool { return strings.Count(n.output(neighbour), "tick") >= ticks+10 })
	o, output := n.execute(compute.Bundle{Code: "print('new here')"}, nil)
	if o.Status != compute.StatusCompleted || output != "new here\n" {
		t.Errorf("an execution beside them ended as %s %q with output %q", o.Status, o.Detail, output)
	}
	if err := os.WriteFile(filepath.Join(control, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ending{status: compute.StatusCompleted}.check(t, n.end(neighbour))
	checkTicks(t, n.output(neighbour))
	n.stopHard(bad)
	for i, nuisance := range nuisances {
		if o := n.end(bad[i]); o.Status != compute.StatusAborted {
			t.Errorf("the %s had ended before as %s/%s %q", nuisance.name, o.Status, o.Reason, o.Detail)
		}
	}
}

// stopHard aborts the executions and waits for their ends.
func (n *node) stopHard(ids []compute.ExecutionID) {
	n.t.Helper()
	n.update(func() {
		for _, id := range ids {
			if w, lives := n.work[id]; lives {
				w.Execution.Stop = compute.StopHard
			}
		}
	})
	for _, id := range ids {
		n.end(id)
	}
}

// endless returns work with a time limit beyond the test's duration.
func (n *node) endless(code string) compute.Work {
	w := n.newWork(compute.Bundle{Code: code})
	w.Execution.Timeout = 10 * time.Minute
	return w
}

// checkTicks checks that the output of steady is complete and in order.
func checkTicks(t *testing.T, output string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	last := len(lines) - 1
	for i, line := range lines[:last] {
		if line != fmt.Sprintf("tick %d", i) {
			t.Fatalf("the neighbour's line %d is %q", i, line)
		}
	}
	if lines[last] != fmt.Sprintf("end %d", last) {
		t.Errorf("the neighbour's last line is %q after %d ticks", lines[last], last)
	}
}
