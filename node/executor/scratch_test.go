package executor_test

import (
	"strconv"
	"strings"
	"testing"

	"berth/compute"
	"berth/node/executor"
)

// fillScratch prints the size of the scratch space in MiB, and what ends a file
// that is twice as large.
const fillScratch = `
import os
stat = os.statvfs("/work")
mib = round(stat.f_blocks * stat.f_frsize / 2**20)
print("same", os.stat("/tmp").st_dev == os.stat("/work").st_dev, "memory", os.statvfs("/dev/shm").f_blocks > 0)
try:
    with open("/tmp/full", "wb", buffering=0) as file:
        for _ in range(2 * mib):
            file.write(b"x" * 2**20)
    print("no end")
except OSError as error:
    print("MiB", mib, "error", error.errno)
`

// TestScratchSpace fills the scratch space of executions.
func TestScratchSpace(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil) // 64 MiB.
	for name, test := range map[string]struct {
		sizeMiB   int64
		memory    bool
		least, at int // Bounds of the size that it sees.
	}{
		"of the node":  {0, false, 50, 64},
		"as asked for": {96, false, 80, 96},
		"in memory":    {0, true, 64, 64},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := n.as(t)
			o, text := n.execute(compute.Bundle{Code: fillScratch}, func(w *compute.Work) {
				w.Execution.ScratchMiB, w.Execution.ScratchMemory = test.sizeMiB, test.memory
			})
			if o.Status != compute.StatusCompleted || !strings.Contains(text, "same True memory True") ||
				!strings.Contains(text, "error 28") {
				t.Fatalf("ended as %s %q: %s", o.Status, o.Detail, text)
			}
			_, rest, _ := strings.Cut(text, "MiB ")
			mib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil || mib < test.least || mib > test.at {
				t.Errorf("it has %d MiB of scratch space, not %d", mib, test.at)
			}
		})
	}
}

// TestScratchSpaceNeedsDisk asks a node whose scratch space is in memory for disk.
func TestScratchSpaceNeedsDisk(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(c *executor.Config) { c.ScratchMemory = true })
	o, _ := n.execute(compute.Bundle{Code: "print(1)"}, func(w *compute.Work) { w.Execution.ScratchMiB = 100 })
	if o.Status != compute.StatusSystemFailure || o.Ran || !strings.Contains(o.Detail, "scratch space") {
		t.Errorf("ended as %s %q", o.Status, o.Detail)
	}
}
