package executor_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"berth/compute"
)

// median returns the middle of n timings of fn.
func median(n int, fn func()) time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		fn()
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[n/2]
}

// TestStartCost prints what the sandbox costs beside the interpreter alone.
func TestStartCost(t *testing.T) {
	n := newNode(t, nil)
	bare := median(21, func() {
		if out, err := exec.Command("/root/.pyenv/versions/3.11.7/bin/python3", "-c", "print(1)").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	})
	var inside time.Duration
	boxed := median(21, func() {
		o := n.end(n.place(n.newWork(compute.Bundle{Code: "print(1)"})))
		inside += o.Duration
	})
	t.Logf("python alone %v; place to outcome, sandboxed, %v; of it %v inside", bare, boxed, inside/21)
}
