package executor_test

import (
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"berth/compute"
)

// BenchmarkStart compares a trivial execution, from its placement to its outcome,
// with the interpreter alone.
func BenchmarkStart(b *testing.B) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable, end='')").Output()
	if err != nil {
		b.Fatal(err)
	}
	n := newNode(b, nil)
	bundle := compute.Bundle{Code: "print(1)"}
	n.end(n.place(n.newWork(bundle)))
	var bare, boxed, bareCPU, boxedCPU []time.Duration
	for b.Loop() {
		start, cpu := time.Now(), childrenCPU(b)
		if out, err := exec.Command(string(out), "-u", "-c", "print(1)").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		middle, middleCPU := time.Now(), childrenCPU(b)
		n.end(n.place(n.newWork(bundle)))
		bare, boxed = append(bare, middle.Sub(start)), append(boxed, time.Since(middle))
		bareCPU, boxedCPU = append(bareCPU, middleCPU-cpu), append(boxedCPU, childrenCPU(b)-middleCPU)
	}
	b.ReportMetric(float64(median(bare).Microseconds())/1000, "python-ms")
	b.ReportMetric(float64(median(boxed).Microseconds())/1000, "sandboxed-ms")
	b.ReportMetric(float64(median(bareCPU).Microseconds())/1000, "python-cpu-ms")
	b.ReportMetric(float64(median(boxedCPU).Microseconds())/1000, "sandboxed-cpu-ms")
}

// childrenCPU returns the CPU time of all processes that were waited for.
func childrenCPU(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func median(times []time.Duration) time.Duration {
	slices.Sort(times)
	return times[len(times)/2]
}
