package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/scheduler"
)

// simulation is a cluster whose attempts end when the test says, and whose
// clock goes from one end to the next.
type simulation struct {
	*cluster

	ends  map[command.AttemptRef]compute.Instant
	early func() int64 // In thousandths: how much of its longest time an attempt takes.
}

func newSimulation(tb testing.TB, nodes ...[]string) *simulation {
	s := &simulation{
		newCluster(tb, nodes...), map[command.AttemptRef]compute.Instant{}, func() int64 { return 1000 },
	}
	s.must(command.SetSettings{Term: 1, Settings: command.Settings{
		SignupGrant: 1000 * compute.Credit, Queued: 10_000, TimeoutMax: 10 * time.Hour,
		StopGrace: 10 * time.Second, PreemptNotice: 30 * time.Second, PreemptMinRun: time.Minute,
		ShareHalfLife: time.Hour,
	}})
	return s
}

// limited sets a time limit.
func limited(d time.Duration) func(*compute.Execution) {
	return func(e *compute.Execution) { e.Timeout = d }
}

// until lets the clock go to an instant.
func (s *simulation) until(at compute.Instant) {
	for s.machine.View().Now() < at {
		s.now = max(s.now, min(at, s.machine.View().Now().Add(5*time.Minute))-1)
		s.must(command.Tick{Term: 1})
	}
}

// step packs, and lets whatever ends next end. It reports whether anything did.
func (s *simulation) step() bool {
	s.tb.Helper()
	s.pack()
	next := compute.Work{}
	for n := range s.machine.View().Nodes() {
		for _, w := range s.machine.View().Work(n.ID) {
			if s.end(w); next.Attempt == nil || s.end(w) < s.end(next) {
				next = w
			}
		}
	}
	if next.Attempt == nil {
		return false
	}
	s.until(s.end(next))
	s.finishWork(next)
	return true
}

// end returns when an attempt ends: by its limits, or as early says.
func (s *simulation) end(w compute.Work) compute.Instant {
	of := command.AttemptRef{Execution: w.Execution.ID, Epoch: w.Attempt.Epoch}
	if _, known := s.ends[of]; !known {
		s.must(command.StartAttempt{Node: w.Attempt.Node, Start: compute.AttemptStart{
			Execution: w.Execution.ID, Epoch: w.Attempt.Epoch, ExecletAt: s.now, StartedAt: s.now,
		}})
		longest := int64(w.LatestEnd() - w.Attempt.PlacedAt)
		s.ends[of] = w.Attempt.PlacedAt + compute.Instant(longest*s.early()/1000)
	}
	return min(s.ends[of], w.LatestEnd())
}

// finishWork ends an attempt, as preempted if it was preempted.
func (s *simulation) finishWork(w compute.Work) {
	s.tb.Helper()
	o := compute.Outcome{
		Execution: w.Execution.ID, Epoch: w.Attempt.Epoch, Status: compute.StatusCompleted, Ran: true, Duration: time.Second,
	}
	if !w.Attempt.PreemptAt.IsZero() && s.ends[command.AttemptRef{Execution: w.Execution.ID, Epoch: w.Attempt.Epoch}] > w.LatestEnd() {
		o.Status, o.Reason = compute.StatusSystemFailure, compute.ReasonPreempted
	}
	s.must(command.FinishAttempt{Node: w.Attempt.Node, Outcome: o})
}

// startOf steps until an execution has its place and returns when it got it.
func (s *simulation) startOf(id compute.ExecutionID) compute.Instant {
	s.tb.Helper()
	for range 10_000 {
		s.pack()
		if e := s.get(id); e.Epoch > 0 {
			return e.PlacedAt
		}
		if !s.step() {
			break
		}
	}
	s.tb.Fatalf("execution %s never starts: %v", id, s.get(id).Reason)
	return 0
}

func TestReservedRoomIsForWhatEndsBefore(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4"})
	running := s.submit("t4", limited(300*time.Second))
	s.pack()
	head := s.submit("t4.2x", limited(60*time.Second))
	long := s.submit("t4", limited(301*time.Second))
	short := s.submit("t4", limited(60*time.Second))
	s.pack()
	for id, want := range map[compute.ExecutionID]bool{running: true, head: false, long: false, short: true} {
		if placed := s.get(id).Epoch > 0; placed != want {
			t.Errorf("%s with %s: placed %v, want %v", s.get(id).Profile, s.get(id).Timeout, placed, want)
		}
	}
	limit := s.get(running).EndsBy(s.get(running).PlacedAt)
	if at := s.startOf(head); at.Sub(limit) > time.Second {
		t.Errorf("the head starts %s after the last of what it waits for", at.Sub(limit))
	}
}

// TestCapacityBesideAReservation: a head of two GPUs of eight vCPUs each waits for one
// of them. The vCPUs of the other are kept for it, and those that it waits for come with
// their GPU. Other free capacity may be used for any length of time.
func TestCapacityBesideAReservation(t *testing.T) {
	const long = 10 * time.Hour
	type job struct {
		profile string
		limit   time.Duration
		placed  bool
	}
	one := []job{{profile: "t4", limit: 5 * time.Minute}}
	for name, test := range map[string]struct {
		node    []string // Eight vCPUs for each.
		running []job
		atOnce  bool // Those are placed in the same pass.
		head    string
		behind  []job
	}{
		"all that is left": {
			node: []string{"t4", "t4", "h100"}, running: one, head: "t4.2x",
			behind: []job{{"cpu.5x", long, true}, {"cpu.3x", long, true}, {"cpu.1x", long, false}},
		},
		"of what this pass placed": {
			node: []string{"t4", "t4", "h100"}, running: one, atOnce: true, head: "t4.2x",
			behind: []job{{"cpu.8x", long, true}, {"cpu.1x", long, false}},
		},
		"GPUs beside it": {
			node: []string{"t4", "t4", "h100"}, running: one, head: "t4.2x",
			behind: []job{{"h100", long, true}, {"cpu.1x", long, false}},
		},
		"what ends before": {
			node: []string{"t4", "t4", "h100"}, running: one, head: "t4.2x",
			behind: []job{{"cpu.5x", long, true}, {"cpu.8x", time.Minute, true}, {"cpu.3x", 6 * time.Minute, false}},
		},
		// Work without GPUs may end late: the head does not wait for it.
		"not what others bring": {
			node:    []string{"t4", "t4", "h100", "h100"},
			running: append([]job{{profile: "cpu.8x", limit: time.Minute}}, one...), head: "t4.2x",
			behind: []job{{"cpu.8x", long, true}, {"cpu.1x", long, false}},
		},
		"not what a longer share brings": {
			node:    []string{"t4", "h100", "h100"},
			running: []job{{profile: "t4.250m", limit: 5 * time.Minute}, {profile: "t4.500m", limit: time.Hour}}, head: "t4.500m",
			behind: []job{{"cpu.16x", long, true}, {"cpu.1x", long, false}},
		},
		"no devices, no more": {
			node: []string{"t4", "t4"}, running: []job{{profile: "cpu.8x", limit: 5 * time.Minute}}, head: "cpu.12x",
			behind: []job{{"cpu.4x", long, false}, {"cpu.4x", time.Minute, true}},
		},
		"two that wait": {
			node:    []string{"t4", "h100", "h100", "h100"},
			running: []job{{profile: "t4", limit: 10 * time.Minute}, {profile: "cpu.12x", limit: 5 * time.Minute}}, head: "t4",
			behind: []job{{"cpu.16x", long, false}, {"cpu.4x", long, false}, {"cpu.8x", 8 * time.Minute, false}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(t, test.node)
			var running []compute.ExecutionID
			for _, j := range test.running {
				running = append(running, s.submit(j.profile, limited(j.limit)))
			}
			if !test.atOnce {
				s.pack()
			}
			head := s.submit(test.head, limited(time.Minute))
			var behind []compute.ExecutionID
			for _, j := range test.behind {
				behind = append(behind, s.submit(j.profile, limited(j.limit)))
			}
			for range 2 { // The next pass must not worsen what one pass gave.
				s.pack()
				if s.get(head).Epoch > 0 {
					t.Fatal("the head was placed: it is to wait")
				}
				for i, j := range test.behind {
					if placed := s.get(behind[i]).Epoch > 0; placed != j.placed {
						t.Errorf("%s with %s: placed %v, want %v", j.profile, j.limit, placed, j.placed)
					}
				}
			}
			promised := compute.Instant(0)
			for i, id := range running {
				if test.running[i].limit < time.Hour {
					promised = max(promised, s.get(id).EndsBy(s.get(id).PlacedAt))
				}
			}
			if at := s.startOf(head); at.Sub(promised) > time.Second {
				t.Errorf("the head starts %s after the last of what it waits for", at.Sub(promised))
			}
		})
	}
}

// TestSecondReservationIsKept: two executions wait on one node, and a third behind them
// would end before the first can start, but not before the second. It leaves capacity for
// both: in the next pass the first of the order gets its reservation first.
func TestSecondReservationIsKept(t *testing.T) {
	s := newSimulation(t, []string{"t4", "h100", "l40s", "l40s"})
	s.submit("t4.100m", limited(10*time.Minute))
	running := s.submit("h100", limited(5*time.Minute))
	s.pack()
	s.submit("t4", limited(10*time.Hour))
	second := s.submit("h100", limited(10*time.Hour))
	s.submit("cpu.20x", limited(8*time.Minute))
	ended := s.get(running).EndsBy(s.get(running).PlacedAt)
	if at := s.startOf(second); at.Sub(ended) > time.Second {
		t.Errorf("the second starts %s after what it waits for", at.Sub(ended))
	}
}

// TestHeadNeverStartsLaterThanAlone is the promise of reservations, for random
// clusters and work: whatever waits behind it, the head starts no later than it
// would alone if everything before it ran to its limits. Both worlds are the
// real state machine.
func TestHeadNeverStartsLaterThanAlone(t *testing.T) {
	const slack = 2 * time.Second // The clock of the simulation rises with each command.
	filled := 0
	for seed := range uint64(40) {
		alone := headStart(t, seed, false, 1000)
		promise := alone.at
		crowded := headStart(t, seed, true, 1000)
		filled += crowded.passed
		if crowded.at.Sub(promise) > slack {
			t.Errorf("seed %d: alone the head starts after %s, with work behind it %s later",
				seed, promise.Sub(alone.began), crowded.at.Sub(promise))
		}
		if early := headStart(t, seed, true, 200); early.at.Sub(promise) > slack {
			t.Errorf("seed %d: with ends before the limits the head starts %s after what was promised",
				seed, early.at.Sub(promise))
		}
	}
	if filled < 100 {
		t.Errorf("only %d executions went ahead of the heads: the worlds are too easy", filled)
	}
}

type start struct {
	began, at compute.Instant
	passed    int // Executions behind the head that were placed before it.
}

// headStart returns when the head of a random world starts.
func headStart(t *testing.T, seed uint64, crowded bool, least int64) start {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	s := newSimulation(t, []string{"t4", "t4", "t4", "t4"}, []string{"t4", "t4"}, []string{"h100", "h100", "t4", "t4"})
	ends := rand.New(rand.NewPCG(seed, 12))
	s.early = func() int64 { return least + ends.Int64N(1001-least) }
	profiles := []string{"t4", "t4.2x", "h100", "t4.500m", "cpu.8x", "t4", "cpu.6x", "cpu.3x"}
	some := func(n int) {
		for range n {
			s.submit(profiles[rng.IntN(len(profiles))], limited(time.Duration(1+rng.IntN(60))*10*time.Second))
		}
	}
	some(20)
	s.pack()
	for e := range s.machine.View().Queue() { // Nothing waits but the head.
		s.must(command.StopExecution{Actor: s.actor, Execution: e.ID, Stop: compute.StopHard})
	}
	head := s.submit([]string{"t4.4x", "t4.2x", "h100.2x"}[rng.IntN(3)], limited(time.Minute))
	s.pack()
	began := s.machine.View().Now()
	if s.get(head).Epoch > 0 {
		return start{began, began, 0}
	}
	if crowded {
		some(60)
	}
	out := start{began: began, at: s.startOf(head)}
	for e := range s.machine.View().History(s.actor.Org, fsm.HistoryFilter{}) {
		if e.SubmitIndex > s.get(head).SubmitIndex && e.Epoch > 0 && e.PlacedAt < out.at {
			out.passed++
		}
	}
	return out
}

// TestBackfillRecordsScore holds that an execution on capacity that is promised to
// another one records why it is there, as every other does.
func TestBackfillRecordsScore(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4"})
	s.submit("t4", limited(time.Hour))
	s.pack()
	head := s.submit("t4.2x", limited(time.Hour))
	small := s.submit("t4.500m", limited(time.Minute))
	s.pack()
	if s.get(head).Epoch > 0 || s.get(small).Epoch == 0 {
		t.Fatal("the share did not go ahead of the head")
	}
	if c := s.machine.View().Attempts(small)[0].Placement.Choice; c.Score <= 0 || !c.RunnerUp.IsZero() {
		t.Errorf("it records %+v; a cut GPU costs something, and no other node had the capacity", c)
	}
}

// TestNobodyStarvesUnderFairShare: an organization that has used much more than
// the other, which never runs out of work, still gets its turn.
func TestNobodyStarvesUnderFairShare(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4", "t4", "t4"})
	greedy := s.actor
	s.submit("t4.4x", limited(10*time.Hour))
	s.step() // It used all there is for ten hours.
	waiting := s.submit("t4.4x", limited(10*time.Minute))
	other := s.user("bob")
	for round := range 3000 {
		s.actor = other
		for s.machine.View().QueueLen() < 8 {
			s.submit([]string{"t4", "t4.2x"}[round%2], limited(10*time.Minute))
		}
		if !s.step() {
			t.Fatal("nothing runs")
		}
		if s.actor = greedy; s.get(waiting).Epoch > 0 {
			t.Logf("its turn came in round %d", round)
			if round < 8 {
				t.Error("what it had used did not count")
			}
			return
		}
	}
	t.Error("it starves")
}

// user makes another user with an organization.
func (c *cluster) user(name string) command.Actor {
	c.tb.Helper()
	a := command.Actor{User: compute.UserID{UUID: c.uuid()}, Org: compute.OrgID{UUID: c.uuid()}}
	c.must(command.CreateUser{
		Op: command.Op{ID: compute.OpID{UUID: c.uuid()}}, Actor: command.Actor{Root: true},
		User: compute.User{ID: a.User, Email: name + "@example.com"}, Org: compute.Org{ID: a.Org, Slug: name},
	})
	return a
}

// preemptible makes an execution one that makes room, of priority 10.
func preemptible(e *compute.Execution) { e.Preemptible, e.Priority, e.Timeout = true, 10, time.Hour }

func prioritized(priority int) func(*compute.Execution) {
	return func(e *compute.Execution) { e.Priority, e.Timeout = priority, 10*time.Minute }
}

// TestPreemption is one preemption from the plan to the place.
func TestPreemption(t *testing.T) {
	s := newSimulation(t, []string{"t4", "t4"})
	old := s.submit("t4", preemptible)
	s.run(2 * time.Minute)
	young := s.submit("t4", preemptible)
	s.run(30 * time.Second)
	urgent := s.submit("t4", prioritized(60))
	s.pack()
	if !s.asked(old) || s.asked(young) {
		t.Fatalf("preempted: old %v, young %v, want the one that has run for its minimum", s.asked(old), s.asked(young))
	}
	s.run(10 * time.Minute)
	if s.asked(young) || s.get(urgent).Epoch == 0 && s.get(urgent).Reason != compute.ReasonGPUsBusy {
		t.Errorf("young asked %v, urgent waits for %v", s.asked(young), s.get(urgent).Reason)
	}
	if at := s.startOf(urgent); s.get(old).Status != compute.StatusQueued {
		t.Errorf("at %s the old one is %s", at, s.get(old).Status)
	}
	for s.get(old).Epoch < 2 {
		if !s.step() {
			t.Fatal("it never begins again")
		}
		s.pack()
	}
}

// run starts the placed attempts and lets d pass.
func (s *simulation) run(d time.Duration) {
	s.tb.Helper()
	s.pack()
	for n := range s.machine.View().Nodes() {
		for _, w := range s.machine.View().Work(n.ID) {
			s.end(w)
		}
	}
	s.until(s.now.Add(d))
}

// asked reports whether an execution's newest attempt was preempted.
func (s *simulation) asked(id compute.ExecutionID) bool {
	a := s.machine.View().Attempts(id)
	return len(a) > 0 && !a[len(a)-1].PreemptAt.IsZero() && !a[len(a)-1].Ended
}

// TestCheapestVictims compares the attempts that a plan asks to make room with
// the cheapest of all sets on all nodes.
func TestCheapestVictims(t *testing.T) {
	preempted := 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := newSimulation(t, []string{"t4", "t4", "t4"}, []string{"t4", "t4", "h100"})
		for range 14 {
			s.submit([]string{"t4", "t4.500m", "t4.250m", "t4.2x", "h100.300m", "cpu.2x"}[rng.IntN(6)], preemptible,
				func(e *compute.Execution) { e.Priority, e.Preemptible = 0, rng.IntN(6) > 0 })
			s.run(time.Duration(rng.IntN(90)) * time.Second)
		}
		s.submit([]string{"t4", "t4.2x", "t4.750m"}[rng.IntN(3)], prioritized(60))
		v := s.machine.View()
		plan := scheduler.Pack(v)
		if len(plan.Assignments) > 0 {
			continue // There was room.
		}
		want, possible := cheapest(v)
		got := uint64(0)
		for _, p := range plan.Preemptions {
			a := v.Attempts(p.Execution)
			got += costOf(v, a[len(a)-1])
		}
		preempted += len(plan.Preemptions)
		if possible != (len(plan.Preemptions) > 0) || possible && got != want {
			t.Errorf("seed %d: %d attempts that lost %d, want %d (possible %v)", seed, len(plan.Preemptions), got, want, possible)
		}
		s.pack() // The state accepts them all.
		for _, p := range plan.Preemptions {
			if !s.asked(p.Execution) {
				t.Errorf("seed %d: the state refused a preemption", seed)
			}
		}
	}
	if preempted < 20 {
		t.Errorf("only %d preemptions", preempted)
	}
}

func costOf(v *fsm.View, a *compute.Attempt) uint64 {
	e, _ := v.AnyExecution(a.Execution)
	return uint64(e.FairPrice()) * uint64(a.Ran(v.Now()).Milliseconds())
}

// cheapest returns the cost of the cheapest set of attempts without which the head of
// the queue would fit on some node, by trying all sets.
func cheapest(v *fsm.View) (least uint64, possible bool) {
	var head *compute.Execution
	for e := range scheduler.Order(v) {
		head = e
		break
	}
	for n := range v.Nodes() {
		var may []compute.Work
		for _, w := range v.Work(n.ID) {
			if w.MayBePreempted(head.Priority, v.Now(), v.MinRun()) {
				may = append(may, w)
			}
		}
		for set := range 1 << len(may) {
			without, cost := *n, uint64(0)
			without.GPUs = append([]compute.GPU(nil), n.GPUs...)
			for i, w := range may {
				if set&(1<<i) == 0 {
					continue
				}
				cost += costOf(v, w.Attempt)
				without.UsedVCPUMilli -= w.Execution.Request.VCPUMilli
				without.UsedMemoryMiB -= w.Execution.Request.MemoryMiB
				for _, share := range w.Attempt.GPUs {
					for g := range without.GPUs {
						if without.GPUs[g].ID == share.GPU {
							without.GPUs[g].UsedMilli -= share.Milli
						}
					}
				}
			}
			r := &head.Request
			fits := empty(&without, r) && len(freeGPUs(&without, r)) >= r.GPUs && nothing(missing(&without, r))
			if fits && (!possible || cost < least) {
				least, possible = cost, true
			}
		}
	}
	return least, possible
}

// TestPreemptionEnds runs random work of all priorities, much of it
// preemptible, to its end: nothing is pushed back and forth for ever.
func TestPreemptionEnds(t *testing.T) {
	again := 0
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s := newSimulation(t, []string{"t4", "t4", "h100"}, []string{"t4", "t4", "t4", "t4"})
		s.early = func() int64 { return 100 + rng.Int64N(901) }
		var all []compute.ExecutionID
		for range 30 {
			for range rng.IntN(4) {
				all = append(all, s.submit([]string{"t4", "t4.2x", "t4.500m", "h100", "cpu.4x"}[rng.IntN(5)], prioritized(rng.IntN(4)*25),
					func(e *compute.Execution) { e.Preemptible = rng.IntN(2) == 0 }))
			}
			s.run(time.Duration(rng.IntN(120)) * time.Second)
			s.step()
		}
		for round := 0; s.step(); round++ {
			if round > 2000 {
				t.Fatalf("seed %d: no end", seed)
			}
		}
		for _, id := range all {
			e := s.get(id)
			if e.Status != compute.StatusCompleted {
				t.Errorf("seed %d: %s of priority %d is %s", seed, e.Profile, e.Priority, fmt.Sprint(e.Status, e.Reason))
			}
			again += int(e.Epoch) - 1
		}
	}
	if again < 10 {
		t.Errorf("only %d attempts were preempted", again)
	}
}

// nothing reports whether all amounts are zero.
func nothing(amounts []int64) bool {
	return !slices.ContainsFunc(amounts, func(n int64) bool { return n != 0 })
}
