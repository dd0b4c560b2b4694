package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/scheduler"
	"berth/testsize"
)

// story is a random history of a real state machine, with a Packer that follows
// it.
type story struct {
	*simulation

	rng    *rand.Rand
	users  []command.Actor
	nodes  int
	packer *scheduler.Packer

	// Few of each, so that classes have many members.
	profiles   []string
	limits     []time.Duration
	tags       [][]string
	priorities []int
	retries    int
}

func newStory(tb testing.TB, seed uint64) *story {
	s := &story{rng: rand.New(rand.NewPCG(seed, 77)), packer: scheduler.NewPacker(), nodes: 1}
	s.simulation = newSimulation(tb, s.hardware())
	s.must(command.SetFormat{Term: 1, Format: format.Newest})
	for range s.rng.IntN(4) {
		s.join()
	}
	s.users = []command.Actor{s.actor, s.user("bob"), s.user("cyd")}[:1+s.rng.IntN(3)]
	s.profiles = some(s.rng, 5, "t4", "t4.2x", "t4.4x", "t4.500m", "t4.300m", "h100", "h100.2x", "h100.4x", "a100", "cpu", "cpu.4x", "cpu.8x",
		"any", "any.2x", "any.500m")
	s.limits = some(s.rng, 2, time.Minute, 10*time.Minute, 2*time.Hour)
	s.tags = some(s.rng, 2, nil, []string{"red"}, []string{"blue", "red"}, []string{"green"})
	s.priorities = some(s.rng, 3, 0, 0, 10, 20)
	s.retries = 5 * s.rng.IntN(2)
	return s
}

// some returns 1 to n of all, in random order.
func some[T any](rng *rand.Rand, n int, all ...T) []T {
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:1+rng.IntN(n)]
}

// one returns one of all.
func one[T any](rng *rand.Rand, all []T) T { return all[rng.IntN(len(all))] }

// hardware returns the GPUs of a random node.
func (s *story) hardware() []string {
	return [][]string{
		{"t4", "t4"}, {"t4", "t4", "t4", "t4"}, {"h100", "h100", "h100", "h100"}, {"h100", "h100", "t4"}, {"a100"},
	}[s.rng.IntN(5)]
}

func (s *story) join() {
	s.addNode(s.nodes, s.hardware())
	s.nodes++
}

// node returns a random node.
func (s *story) node() *compute.Node {
	at := s.rng.IntN(s.nodes)
	for n := range s.machine.View().Nodes() {
		if at--; at < 0 {
			return n
		}
	}
	return nil
}

func (s *story) op() command.Op {
	return command.Op{ID: compute.OpID{UUID: s.uuid()}, Org: s.actor.Org}
}

// work submits up to n executions. Those that fit on no node are refused.
func (s *story) work(n int) {
	for range 1 + s.rng.IntN(n) {
		s.actor = one(s.rng, s.users)
		s.apply(command.Submit{Op: s.op(), Actor: s.actor, Execution: compute.Execution{
			ID: compute.ExecutionID{UUID: s.uuid()}, Profile: one(s.rng, s.profiles), Priority: one(s.rng, s.priorities),
			Timeout: one(s.rng, s.limits), Tags: one(s.rng, s.tags),
			Preemptible: s.rng.IntN(3) == 0, MaxRetries: s.retries,
		}})
	}
}

// end starts or ends some of the live attempts.
func (s *story) end() {
	for n := range s.machine.View().Nodes() {
		for _, w := range s.machine.View().Work(n.ID) {
			switch s.rng.IntN(4) {
			case 0:
				s.apply(command.StartAttempt{Node: n.ID, Start: compute.AttemptStart{
					Execution: w.Execution.ID, Epoch: w.Attempt.Epoch, ExecletAt: s.now, StartedAt: s.now,
				}})
			case 1:
				o := compute.Outcome{
					Execution: w.Execution.ID, Epoch: w.Attempt.Epoch, Status: compute.StatusCompleted, Ran: true, Duration: time.Second,
				}
				if s.rng.IntN(2) == 0 {
					o.Status, o.Reason, o.Ran = compute.StatusSystemFailure, compute.ReasonStartFailed, false
				}
				s.apply(command.FinishAttempt{Node: n.ID, Outcome: o})
			}
		}
	}
}

// change changes something about nodes, quotas or single executions.
func (s *story) change() {
	n, root := s.node(), command.Actor{Root: true}
	switch s.rng.IntN(7) {
	case 0:
		s.apply(command.SetNodeState{Term: 1, Node: n.ID, State: compute.NodeState(s.rng.IntN(2))})
	case 1:
		s.apply(command.DrainNode{Op: s.op(), Actor: root, Node: n.ID, Drained: s.rng.IntN(2) == 0})
	case 2:
		lost := command.LoseAttempts{Term: 1, Node: n.ID}
		for _, w := range s.machine.View().Work(n.ID) {
			lost.Attempts = append(lost.Attempts, command.AttemptRef{Execution: w.Execution.ID, Epoch: w.Attempt.Epoch})
		}
		s.apply(command.SetNodeState{Term: 1, Node: n.ID, State: compute.NodeDown})
		s.apply(lost)
	case 3:
		if s.nodes < 6 {
			s.join()
		}
	case 4:
		q := compute.Quota{Org: one(s.rng, s.users).Org, Denied: s.rng.IntN(4) == 0}
		q.Profile = one(s.rng, []string{"gpu.t4", "gpu.t4.2x", "gpu.h100", "gpu.h100.2x", "gpu.a100", "cpu", "cpu.4x"})
		if !q.Denied {
			q.Concurrent, q.MilliGPU = []int{0, 1, 2, 5}[s.rng.IntN(4)], []int64{0, 0, 500, 2000}[s.rng.IntN(4)]
		}
		s.apply(command.SetQuota{Op: s.op(), Actor: root, Quota: q})
	case 5:
		q := compute.Quota{Org: one(s.rng, s.users).Org}
		if q.Tag = []string{"", "red", "blue", "green"}[s.rng.IntN(4)]; q.Tag == "" {
			q.Weight = []int{0, 50, 300}[s.rng.IntN(3)]
		}
		q.Concurrent, q.MilliGPU = []int{0, 0, 2, 5}[s.rng.IntN(4)], []int64{0, 0, 2000, 4000}[s.rng.IntN(4)]
		s.apply(command.SetQuota{Op: s.op(), Actor: root, Quota: q})
	default:
		for e := range s.machine.View().Queue() {
			if s.rng.IntN(8) == 0 {
				s.apply(command.StopExecution{Op: s.op(), Actor: root, Execution: e.ID, Stop: compute.StopHard})
			}
		}
	}
}

// step changes something.
func (s *story) step() {
	switch s.rng.IntN(10) {
	case 0, 1, 2:
		s.work(6)
	case 3:
		s.work(40)
	case 4, 5, 6:
		s.end()
	case 7:
		s.until(s.machine.View().Now().Add(time.Duration(s.rng.IntN(1200)) * time.Second))
	default:
		s.change()
	}
}

// check compares the plans for the newest view and commits the plan, most of the
// time.
func (s *story) check() compute.Plan {
	s.tb.Helper()
	v := s.machine.View()
	want := scheduler.PackAll(scheduler.NewPacker(), v)
	if got := s.packer.Pack(v); !reflect.DeepEqual(got, want) {
		s.tb.Fatalf("with what it remembers the plan is\n%+v\nand without it\n%+v", got, want)
	}
	if s.rng.IntN(4) == 0 {
		if got := scheduler.Pack(v); !reflect.DeepEqual(got, want) {
			s.tb.Fatalf("in one pass the plan is\n%+v\nand without skipping\n%+v", got, want)
		}
	}
	if s.rng.IntN(8) > 0 && !want.Empty() {
		s.apply(command.CommitPlan{Term: 1, ViewIndex: v.Index(), Plan: want})
	}
	return want
}

// TestIncrementalPlanIsTheFullOne holds that skipping never changes a plan: one
// Packer follows a history and skips the executions whose class waits as before,
// while another pass reads the whole queue and decides about every execution.
func TestIncrementalPlanIsTheFullOne(t *testing.T) {
	var assigned, preempted, waiting, ahead int
	profiles := map[compute.Reason]int{}
	for seed := range testsize.Pick(uint64(150), 10_000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			s := newStory(t, seed)
			for range 25 {
				s.step()
				for range 1 + s.rng.IntN(3) {
					plan := s.check()
					assigned += len(plan.Assignments)
					preempted += len(plan.Preemptions)
					waiting += len(plan.Waiting)
					for _, w := range plan.Waiting {
						profiles[w.Reason]++
					}
					if len(plan.Assignments) > 0 && s.machine.View().QueueLen() > 0 {
						ahead++
					}
				}
			}
		})
	}
	t.Logf("%d assigned, %d preempted, %d with a new reason to wait, %d plans before others that wait", assigned, preempted, waiting, ahead)
	if assigned == 0 || preempted == 0 || waiting == 0 || ahead == 0 ||
		profiles[compute.ReasonProfileDenied] == 0 || profiles[compute.ReasonProfileConcurrency] == 0 {
		t.Error("the histories do not reach everything that a plan has")
	}
}

// TestBlockedClassIsDecidedOnce holds that a pass does not decide about every
// execution of a long queue, whatever is placed behind it.
func TestBlockedClassIsDecidedOnce(t *testing.T) {
	const waiting = 600
	c := waitingCluster(t, waiting, 3)
	p := scheduler.NewPacker()
	if n := scheduler.Decisions(p, c.machine.View()); n == 0 || n > waiting/3 {
		t.Errorf("the first pass decides %d times about %d executions", n, waiting)
	}
	id := c.submit("cpu")
	v := c.machine.View()
	if n := scheduler.Decisions(p, v); n > waiting/3 {
		t.Errorf("a pass with one more decides %d times", n)
	}
	if plan := p.Pack(v); len(plan.Assignments) != 1 || plan.Assignments[0].Execution != id {
		t.Errorf("the last of the queue fits, and the plan is %+v", plan)
	}
}

// TestAvoidingExecutionBlocksNoOther holds that an execution that waits because
// it avoids a node says nothing about another one that asks for the same.
func TestAvoidingExecutionBlocksNoOther(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 1), used(gpuNode(2, "t4", 2), 16, 128, 1000, 1000))
	head, avoiding, other := execution(1, whole("t4", 2)), execution(2, whole("t4", 1)), execution(3, whole("t4", 1))
	avoiding.Avoid = []compute.NodeID{nodeID(1)}
	for _, e := range []*compute.Execution{head, avoiding, other} {
		e.Reason = compute.ReasonGPUsBusy
	}
	w.submit(head, avoiding, other)
	plan := scheduler.Pack(w.view())
	if want := scheduler.PackAll(scheduler.NewPacker(), w.view()); !reflect.DeepEqual(plan, want) {
		t.Errorf("the plan is %+v, want %+v", plan, want)
	}
	if len(plan.Assignments) != 1 || plan.Assignments[0].Execution != other.ID {
		t.Errorf("the plan is %+v, want the one that avoids nothing placed", plan)
	}
}

// TestPlacementReopensLaterOnes holds where a class continues after a placement: behind
// the executions that the order has passed. An execution before the placed one, of an
// organization with less usage, keeps its earlier reason.
func TestPlacementReopensLaterOnes(t *testing.T) {
	for name, test := range map[string]struct {
		used    uint64 // By the organization of the placed execution.
		waiting int    // How many executions get another reason.
	}{"less usage": {1e9, 0}, "the same usage": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, used(gpuNode(1, "t4", 1), 4, 32, 0), used(gpuNode(2, "t4", 2), 16, 128, 1000, 1000))
			w.shares[orgID(2)] = compute.Share{Used: test.used, Weight: compute.DefaultWeight}
			head, first, skipped := execution(1, whole("t4", 2)), execution(2, whole("t4", 1)), execution(4, whole("t4", 1))
			head.Reason, first.Reason, skipped.Reason = compute.ReasonGPUsBusy, compute.ReasonResourcesBusy, compute.ReasonResourcesBusy
			placed := execution(3, share("t4", 500))
			placed.Org = orgID(2)
			w.submit(head, first, placed, skipped)
			plan := scheduler.Pack(w.view())
			if want := scheduler.PackAll(scheduler.NewPacker(), w.view()); !reflect.DeepEqual(plan, want) {
				t.Errorf("the plan is %+v, want %+v", plan, want)
			}
			if len(plan.Assignments) != 1 || len(plan.Waiting) != test.waiting {
				t.Errorf("the plan is %+v, want one placed and %d with another reason", plan, test.waiting)
			}
		})
	}
}
