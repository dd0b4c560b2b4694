package executor_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"berth/compute"
)

// BenchmarkStart compares an execution that does nothing, from its placement
// to its outcome, with the interpreter alone.
func BenchmarkStart(b *testing.B) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable, end='')").Output()
	if err != nil {
		b.Fatal(err)
	}
	n := newNode(b, nil)
	bundle := compute.Bundle{Code: "print(1)"}
	n.end(n.place(n.newWork(bundle)))
	var bare, boxed []time.Duration
	for b.Loop() {
		start := time.Now()
		if out, err := exec.Command(string(out), "-u", "-c", "print(1)").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		middle := time.Now()
		n.end(n.place(n.newWork(bundle)))
		bare, boxed = append(bare, middle.Sub(start)), append(boxed, time.Since(middle))
	}
	b.ReportMetric(float64(median(bare).Microseconds())/1000, "python-ms")
	b.ReportMetric(float64(median(boxed).Microseconds())/1000, "sandboxed-ms")
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
