//go:build long

package executor_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/packages"
	"berth/node/executor/packages/wheeltest"
	"berth/node/executor/prepare"
	"berth/node/executor/scratch"
)

// TestLargeWheel installs a wheel of the size of PyTorch with its libraries. The
// installer has 2 GiB of memory, so that it cannot have the wheel in it.
func TestLargeWheel(t *testing.T) {
	const size, needed = 3 << 30, 8 << 10 // Bytes, and MiB of disk space.
	dir := t.TempDir()
	if free, err := scratch.FreeMiB(dir); err != nil || free < 2*needed {
		t.Skipf("needs %d MiB of disk space, %d are free: %v", 2*needed, free, err)
	}
	wheeltest.Wheel{Name: "bigtorch", Version: "2.4", Code: "value = 'torch'\n", Size: size}.Write(t, dir)
	n := newNode(t, func(c *executor.Config) {
		c.ScratchMiB = 256
		c.Packages = prepare.Packages{
			Index: packages.Index{Offline: true, FindLinks: []string{dir}}, SizeMiB: needed, Timeout: time.Hour,
		}
	})
	const use = `import os, bigtorch
path = os.path.join(os.path.dirname(bigtorch.__file__), "data.bin")
print(bigtorch.value, os.path.getsize(path))`
	id := n.place(n.newWork(compute.Bundle{Code: use, Requirements: "bigtorch==2.4"}))
	// A machine that does other work may take minutes to write and read so much.
	awaitWithin(t, "the end of the execution", 20*time.Minute, func() bool { return n.outcome(id) != nil })
	if o, text := *n.outcome(id), n.output(id); o.Status != compute.StatusCompleted || !strings.Contains(text, fmt.Sprintf("torch %d", size)) {
		t.Errorf("ended as %s/%s %q: %s", o.Status, o.Reason, o.Detail, text)
	}
}
