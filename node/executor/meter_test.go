package executor_test

import (
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/compute"
	"berth/node/executor"
)

// meter is a Meter that returns the same measurements for every attempt.
type meter struct {
	mu sync.Mutex

	watched  []compute.ExecutionID
	measured []compute.ExecutionID
	from     compute.Instant
	shares   []compute.GPUShare
}

var measured = compute.Usage{
	GPUUtilPercent: 77, GPUMemoryMiB: 5, PowerMilliW: 6, EnergyMilliJ: 7, Simulated: true,
	Samples: []compute.UsageSample{{AtMs: 1, UtilPercent: 2, MemoryMiB: 3, PowerWatt: 4}},
}

func (m *meter) Watch(w compute.Work, from compute.Instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watched, m.from, m.shares = append(m.watched, w.Execution.ID), from, w.Attempt.GPUs
}

func (m *meter) Measure(o *compute.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.measured = append(m.measured, o.Execution)
	o.Usage.GPUUtilPercent, o.Usage.GPUMemoryMiB = measured.GPUUtilPercent, measured.GPUMemoryMiB
	o.Usage.PowerMilliW, o.Usage.EnergyMilliJ = measured.PowerMilliW, measured.EnergyMilliJ
	o.Usage.Simulated, o.Usage.Samples = measured.Simulated, measured.Samples
}

// count returns the number of calls of Watch and of Measure for the execution.
func (m *meter) count(id compute.ExecutionID) (starts, ends int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := func(other compute.ExecutionID) bool { return other == id }
	return len(slices.DeleteFunc(slices.Clone(m.watched), func(o compute.ExecutionID) bool { return !is(o) })),
		len(slices.DeleteFunc(slices.Clone(m.measured), func(o compute.ExecutionID) bool { return !is(o) }))
}

// TestMeter checks that the measurement starts once with the code, that it starts
// again after a restart of the node, and that the outcome has its result.
func TestMeter(t *testing.T) {
	t.Parallel()
	m := &meter{}
	n := newNode(t, func(c *executor.Config) { c.Meter = m })
	w := n.newWork(compute.Bundle{Code: "import sys, time\nprint('here', flush=True)\nwhile True: time.sleep(0.1)"})
	gpu("h100", 1000, 1000)(&w)
	id := n.place(w)
	await(t, "the start", func() bool { return n.started(id) && strings.Contains(n.output(id), "here") })
	await(t, "the watch", func() bool { starts, _ := m.count(id); return starts == 1 })
	n.stop()
	if _, ends := m.count(id); ends != 0 {
		t.Error("an attempt that lives on is measured as ended")
	}
	n.run()
	await(t, "the watch after a restart", func() bool { starts, _ := m.count(id); return starts == 2 })
	n.update(func() { n.work[id].Execution.Stop = compute.StopHard })
	o := n.end(id)
	got := o.Usage
	got.CPUTime, got.PeakMemoryMiB, got.OutputBytes, got.OutputLines = 0, 0, 0, 0
	if !reflect.DeepEqual(got, measured) {
		t.Errorf("the outcome has %+v, want %+v", got, measured)
	}
	if starts, ends := m.count(id); starts != 2 || ends != 1 {
		t.Errorf("watched %d times and measured %d times, want 2 and 1", starts, ends)
	}
	if m.from != o.StartedAt || !reflect.DeepEqual(m.shares, w.Attempt.GPUs) {
		t.Errorf("watched %v from %v, want %v from %v", m.shares, m.from, w.Attempt.GPUs, o.StartedAt)
	}
}
