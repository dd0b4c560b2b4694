package simulate

import (
	"reflect"
	"testing"
	"time"
)

// TestRoomIsMade follows an execution that is preempted by one of a higher
// priority and restarts after it.
func TestRoomIsMade(t *testing.T) {
	c := config(mustFile(t, "nodes.csv", nodesHeader+"a,8000,65536,1,T4\n"))
	c.Trace = mustFile(t, "pods.csv", podsHeader+"low,1,1,1,1000,,0,1000,,\nhigh,1,1,1,1000,,100,160,,50\n")
	c.Load, c.Executions, c.Organizations, c.Preemptible = 0, 2, 1, 1
	r := mustRun(t, c)
	// The preemption comes at 101 s at the latest with 30 s notice: it has
	// worked for about 130 s.
	if r.Completed != 2 || r.Interruptions.Preempted != 1 || r.Interruptions.PreemptedS < 125 || r.Interruptions.PreemptedS > 135 {
		t.Errorf("%d completed, %+v", r.Completed, r.Interruptions)
	}
	if at := r.VirtualSeconds; at < 1180 || at > 1200 {
		t.Errorf("all ended after %v s, want the 131 s lost, 60 s of the other and 1000 s", at)
	}
	c.Preemptible = 0
	if r := mustRun(t, c); r.Interruptions.Preempted != 0 || r.VirtualSeconds > 1070 {
		t.Errorf("nothing is preemptible: %+v after %v s", r.Interruptions, r.VirtualSeconds)
	}
}

// TestTrouble checks that only the seed determines failures and drains.
// Executions end with a failed node, but not with a drained one, and everything
// else still ends.
func TestTrouble(t *testing.T) {
	run := func(failures, drains time.Duration) *Report {
		c := config("10")
		c.Executions, c.Preemptible = 600, 0.5
		c.Failures, c.Drains, c.Repair = failures, drains, 20*time.Minute
		r := mustRun(t, c)
		r.Memory = Memory{}
		for i := range r.Series {
			r.Series[i].Heap = 0
		}
		return r
	}
	one, again := run(2*time.Hour, 3*time.Hour), run(2*time.Hour, 3*time.Hour)
	if !reflect.DeepEqual(one, again) {
		t.Errorf("two runs differ:\n%+v\n%+v", one.Interruptions, again.Interruptions)
	}
	i := one.Interruptions
	if i.Failures == 0 || i.Drains == 0 || i.Lost == 0 || i.LostS <= 0 || i.Preempted == 0 {
		t.Errorf("%+v: some of each were expected", i)
	}
	if one.Completed+i.Lost != 600 || one.NeverPlaced != 0 {
		t.Errorf("%d completed and %d lost of 600, %d never placed", one.Completed, i.Lost, one.NeverPlaced)
	}
	if calm := run(0, time.Hour).Interruptions; calm.Lost != 0 || calm.Failures != 0 || calm.Drains == 0 {
		t.Errorf("drained only: %+v", calm)
	}
}
