package executor_test

import (
	"strings"
	"testing"

	"berth/compute"
	"berth/node/executor"
)

// keptState is where a cell leaves its globals.
const keptState = ".kernel_state"

// TestCells executes the cells of a notebook one after the other: each has what those
// before it left.
func TestCells(t *testing.T) {
	t.Parallel()
	blobs := newMemory()
	n := newNode(t, func(c *executor.Config) { c.Blobs = blobs })
	state := ""
	for i, cell := range []struct {
		name, code, output string
		status             compute.Status
	}{
		{
			"definitions of all kinds",
			`import os.path as p, functools, threading
class Point:
    def __init__(self, x): self.x = x
    def double(self): return self.x * 2
@functools.lru_cache
def scale(x): return x * factor
shift = lambda x: scale(x) + 1
factor, shared = 3, [1]
both = {"shared": shared}
point, points = Point(4), (i for i in range(3))
lock = threading.Lock()
shift(2)`,
			"7\n" +
				"berth: points is not kept for the next cell: TypeError: cannot pickle 'generator' object\n" +
				"berth: lock is not kept for the next cell: TypeError: cannot pickle '_thread.lock' object\n",
			compute.StatusCompleted,
		},
		{
			"what is shared stays so",
			"both['shared'].append(2)\nprint(shared, point.double(), isinstance(point, Point), shift(2))\np.join('a', 'b'), 'lock' in globals()",
			"[1, 2] 8 True 7\n('a/b', False)\n", compute.StatusCompleted,
		},
		{"a failure keeps what was done", "shared.append(3)\ndef fail(): raise KeyError('lost')\nfail()", `Traceback (most recent call last):
  File "/work/main.py", line 3, in <module>
    fail()
  File "/work/main.py", line 2, in fail
    def fail(): raise KeyError('lost')
                ^^^^^^^^^^^^^^^^^^^^^^
KeyError: 'lost'
`, compute.StatusFailed},
		{"no echo behind a semicolon", "shared;", "", compute.StatusCompleted},
		{"no echo of None", "print(shared)", "[1, 2, 3]\n", compute.StatusCompleted},
		{
			"too large", "import random\nlarge = random.randbytes(4 << 20)\nsmall = 1",
			"berth: large is not kept for the next cell: the state would exceed 3 MiB\n", compute.StatusCompleted,
		},
		{"the small ones stay", "small, 'large' in globals(), shared", "(1, False, [1, 2, 3])\n", compute.StatusCompleted},
	} {
		o, output := n.execute(compute.Bundle{Code: cell.code, Cell: i + 1, KernelState: state}, nil)
		if o.Status != cell.status || !sameLines(output, cell.output) {
			t.Fatalf("%s: ended as %s %q with output\n%s\nwant\n%s", cell.name, o.Status, o.Detail, output, cell.output)
		}
		if state = blobs.kept(t, o)[keptState]; state == "" || len(state) > 4<<20 {
			t.Fatalf("%s: the state has %d bytes", cell.name, len(state))
		}
	}
}

// sameLines compares output whose two streams may be in any order.
func sameLines(got, want string) bool {
	count := map[string]int{}
	for line := range strings.Lines(got) {
		count[line]++
	}
	for line := range strings.Lines(want) {
		count[line]--
	}
	for line, n := range count {
		// Carets beneath the code came with Python 3.11.
		if n != 0 && strings.Trim(line, " ^\n") != "" {
			return false
		}
	}
	return true
}

// TestForeignKernelState checks that what is no state fails the cell and not the
// system, and that code in a state is executed nowhere but in the sandbox.
func TestForeignKernelState(t *testing.T) {
	t.Parallel()
	blobs := newMemory()
	n := newNode(t, func(c *executor.Config) { c.Blobs = blobs })
	o, output := n.execute(compute.Bundle{Code: "1", Cell: 2, KernelState: "bm8gc3RhdGU="}, nil)
	if o.Status != compute.StatusFailed || !strings.Contains(output, "kernel_state cannot be restored") {
		t.Errorf("ended as %s with output\n%s", o.Status, output)
	}
	if state, ok := blobs.kept(t, o)[keptState]; ok {
		t.Errorf("it left the state %q", state)
	}
	const forge = `import base64, os, pickle, zlib
class Evil:
    def __reduce__(self): return os.system, ("id -u; cat /etc/shadow",)
text = base64.b64encode(zlib.compress(pickle.dumps(Evil())))
os.makedirs("outputs")
open("outputs/.kernel_state", "wb").write(text)
os._exit(0)`
	o, _ = n.execute(compute.Bundle{Code: forge, Cell: 1}, nil)
	state := blobs.kept(t, o)[keptState]
	_, output = n.execute(compute.Bundle{Code: "1", Cell: 2, KernelState: state}, nil)
	if state == "" || strings.Contains(output, "root:") {
		t.Errorf("a forged state of %d bytes printed\n%s", len(state), output)
	}
}
