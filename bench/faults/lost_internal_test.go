package faults

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// sec returns seconds in a run's time unit.
func sec(s float64) int64 { return int64(s * float64(time.Second)) }

// broken returns a fault that lasts from one second to another.
func broken(nemesis string, from, over float64, on ...string) Fault {
	return Fault{Nemesis: nemesis, On: on, from: sec(from), over: sec(over)}
}

// lost returns an execution that lost an attempt on n1. The attempt gave its
// last sign of life at one second, and the execution began again at another; 0
// is never.
func lost(ended bool, last, again float64) timeline {
	p := timeline{
		id: "e", status: compute.StatusCompleted, marks: map[uint64]check.Mark{1: {Attempt: 1, To: sec(last), Ended: ended}},
		attempts: []wire.Attempt{{Attempt: 1, Node: "n1", Status: "system_failure", Reason: new("node_lost")}},
	}
	if again > 0 {
		p.marks[3] = check.Mark{Attempt: 3, From: sec(again)}
		p.attempts[0].EndedAt = new(compute.Instant(1000))
		p.attempts = append(p.attempts, // The second never began.
			wire.Attempt{Attempt: 2, Node: "n2", Status: "system_failure", PlacedAt: 1200, EndedAt: new(compute.Instant(9000))},
			wire.Attempt{Attempt: 3, Node: "n2", Status: "completed", PlacedAt: 9300})
	}
	return p
}

// TestMoves checks the measured restart time of lost attempts, the fault that
// caused each loss, and the limit of that time.
func TestMoves(t *testing.T) {
	stopped, ended := lost(false, 24, 0), lost(false, 24, 0)
	stopped.stopped, ended.status = true, compute.StatusSystemFailure
	bound := lost(false, 24, 72)
	bound.bound = true
	cut := broken("long-partition", 10, 70, "n1")
	tests := []struct {
		name     string
		timeline timeline
		faults   []Fault
		after    float64 // Below 0: it did not begin again.
		cause    string
		late     bool
	}{
		{"in time", lost(false, 24, 37), []Fault{broken("calm", 1, 9), cut}, 27, "long-partition", false},
		{"late", lost(false, 24, 56), []Fault{cut}, 46, "long-partition", true},
		{"late, behind another fault", lost(false, 24, 80), []Fault{
			broken("partition-follower", 10, 26, "n1"), broken("all-kill", 28, 40),
		}, 70, "partition-follower", false},
		{"late, and another fault long after", lost(false, 24, 99), []Fault{cut, broken("all-kill", 80, 90)}, 89, "long-partition", true},
		{"late, and everything was broken", lost(false, 10, 56), []Fault{broken("power-cut", 10, 20)}, 46, "power-cut", false},
		{"another node was broken", lost(false, 24, 56), []Fault{broken("long-pause", 10, 70, "n2")}, 0, noNemesis, false},
		{"a fault of long before", lost(false, 24, 56), []Fault{broken("leader-kill", 1, 5, "n1")}, 0, noNemesis, false},
		{"it waits for its node", bound, []Fault{cut}, 0, "long-partition", false},
		{"never", lost(false, 24, 0), []Fault{cut}, -1, "", true},
		{"never, it was asked to stop", stopped, []Fault{cut}, -1, "", false},
		{"never, it has no retries left", ended, []Fault{cut}, -1, "", false},
	}
	for _, tt := range tests {
		j := lossChecker{faults: tt.faults, slow: 1, closing: sec(200)}
		moves, wrong := j.moves(&tt.timeline)
		if (len(wrong) > 0) != tt.late || (len(moves) > 0) != (tt.after >= 0) {
			t.Errorf("%s: %v, %v", tt.name, moves, wrong)
		}
		for _, m := range moves {
			if m.After != tt.after || m.Nemesis != tt.cause || !m.byLease() {
				t.Errorf("%s: %+v", tt.name, m)
			}
			if timed := tt.after > 0; (m.Waited != nil) != timed || timed && *m.Waited != 0.5 {
				t.Errorf("%s: it was queued for %v, want 0.5 s", tt.name, m.Waited)
			}
		}
		if j.slow = 3; tt.name == "late" {
			if _, wrong := j.moves(&tt.timeline); len(wrong) > 0 {
				t.Errorf("the limit does not grow with the timeouts: %v", wrong)
			}
		}
	}
}

// TestLostResults checks which faults, by node and by time, excuse that the
// cluster does not know of an end.
func TestLostResults(t *testing.T) {
	tests := []struct {
		name   string
		ended  bool
		faults []Fault
		wrong  bool
	}{
		{"nothing was broken", true, []Fault{broken("calm", 1, 90)}, true},
		{"it did not come to its end", false, nil, false},
		{"its node was killed", true, []Fault{broken("follower-kill", 19, 26, "n1")}, true},
		{"its node was cut off for less than a lease", true, []Fault{broken("partition-follower", 15, 29, "n1")}, true},
		{"its node was cut off for more", true, []Fault{broken("partition-follower", 12, 29, "n1")}, false},
		{"another one was", true, []Fault{broken("long-partition", 10, 70, "n2")}, true},
		{"its supervisor was killed", true, []Fault{broken("supervisor-kill", 21, 22, "n1")}, false},
		{"another node's was", true, []Fault{broken("supervisor-kill", 21, 22, "n2")}, true},
		{"its supervisor was killed long after", true, []Fault{broken("supervisor-kill", 40, 41, "n1")}, true},
		{"its machine ended before", true, []Fault{broken("machine-crash", 1, 9, "n1")}, true},
		{"all disks lost what was not synced", true, []Fault{broken("power-cut", 21, 23)}, false},
		{"no leader, then away for long", true, []Fault{
			broken("leader-kill", 19, 26, "n3"), broken("long-pause", 28, 70, "n1"),
		}, false},
		{"away for long, later", true, []Fault{broken("long-pause", 28, 70, "n1")}, true},
		{"the cluster did not recover", true, []Fault{{Nemesis: "long-crash", from: sec(10), On: []string{"n1"}}}, false},
	}
	for _, tt := range tests {
		j, p := lossChecker{faults: tt.faults, slow: 1}, lost(tt.ended, 20, 50)
		if got := j.lostResults(&p); (len(got) > 0) != tt.wrong {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestMovedSums checks the sums over second attempts.
func TestMovedSums(t *testing.T) {
	long := []Fault{{Nemesis: "long-pause"}}
	got := movedOf([]Report{
		{Faults: long, Moves: []Move{{Reason: "node_lost", After: 27, Waited: new(0.1)}, {Reason: "node_lost"}, {Reason: "supervisor_lost", After: 1}}},
		{Faults: long},
		{Moves: []Move{{Reason: "node_lost", After: 28}, {Reason: "node_lost", After: 36, Waited: new(9.5)}}},
	})
	want := Moved{
		Leases: 4, Others: 1, Runs: 2, Without: 1, P50: 28 * time.Second, P99: 36 * time.Second, Max: 36 * time.Second,
		Queued: 2, Prompt: 1, PromptMax: 27 * time.Second,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestLongFaultsComeByPlan checks the number of faults that outlast a lease:
// two in a run of six minutes, none in one of two minutes. A run of only long
// faults has nothing else.
func TestLongFaultsComeByPlan(t *testing.T) {
	all := Config{Duration: 6 * time.Minute, Workers: 1, Points: true}.withDefaults().Nemeses
	if short := (Config{Duration: 100 * time.Second}).withDefaults().Nemeses; !slices.Contains(all, "long-pause") ||
		slices.ContainsFunc(short, func(name string) bool { return slices.Contains(longNames(), name) }) {
		t.Errorf("a short run has %v, one of six minutes %v", short, all)
	}
	for seed := range uint64(20) {
		count := 0
		plan := newSchedule(rand.New(rand.NewPCG(seed, 0)), nemeses()) //nolint:gosec // A test.
		for since := time.Duration(0); since < 6*time.Minute; since += 12 * time.Second {
			n := plan.next(since)
			if n.isLong() {
				count++
				since += n.hold[1]
			}
		}
		if count != 2 {
			t.Errorf("seed %d: %d long faults", seed, count)
		}
	}
	n := newSchedule(rand.New(rand.NewPCG(1, 0)), longNemeses()).next(0) //nolint:gosec // A test.
	for _, long := range longNemeses() {
		if long.hold[0] < 35*time.Second || !n.isLong() {
			t.Errorf("%s lasts %v", long.name, long.hold)
		}
	}
	if got := weighted(rand.New(rand.NewPCG(1, 0)), []int{0, 7, 0}); got != 1 { //nolint:gosec // A test.
		t.Errorf("node %d is broken, which executes nothing", got)
	}
}

// TestLongCodeIsRetried checks that long code outlives a lease and its margin,
// may be retried, and is rare.
func TestLongCodeIsRetried(t *testing.T) {
	w := &executionLoad{hooks: map[string]bool{}, long: map[string]bool{}}
	rng := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // A test.
	for i := range longAtOnce + 2 {
		s, long := w.start(&caller{rng: rng}, string(rune('a'+i)))
		if long != (i < longAtOnce) {
			t.Errorf("execution %d is long: %v", i, long)
		}
		if long && s.MaxRetries < 1 {
			t.Errorf("%+v is not retried", s)
		}
	}
	w.forget(&execution{op: "a"})
	if _, long := w.start(&caller{rng: rng}, "z"); !long {
		t.Error("one has ended, and there is no other")
	}
}
