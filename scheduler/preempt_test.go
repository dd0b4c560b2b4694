package scheduler_test

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/scheduler"
)

// stage is a view of running attempts.
type stage struct {
	*fakeView

	now  compute.Instant
	work map[compute.NodeID][]compute.Work
}

func (s *stage) Now() compute.Instant                 { return s.now }
func (s *stage) Work(n compute.NodeID) []compute.Work { return s.work[n] }
func (s *stage) Ended() iter.Seq[*compute.Execution]  { return slices.Values([]*compute.Execution{}) }

// put starts an execution on one GPU of a node, age milliseconds ago.
func (s *stage) put(n int, node *compute.Node, age int64, gpu int) {
	r := whole("t4", 1)
	e := execution(n, r)
	e.Price, e.StartedAt = 1000, s.now-compute.Instant(age)
	a := &compute.Attempt{
		Execution: e.ID, Node: node.ID, PlacedAt: e.StartedAt,
		GPUs: []compute.GPUShare{{GPU: node.GPUs[gpu].ID, Milli: r.MilliGPU}},
	}
	node.GPUs[gpu].UsedMilli += r.MilliGPU
	node.UsedVCPUMilli += r.VCPUMilli
	node.UsedMemoryMiB += r.MemoryMiB
	s.work[node.ID] = append(s.work[node.ID], compute.Work{Attempt: a, Execution: e})
}

func newStage() *stage {
	return &stage{
		fakeView: &fakeView{index: 1, limits: map[compute.OrgID]int{}},
		now:      1_000_000, work: map[compute.NodeID][]compute.Work{},
	}
}

// crowd is a stage of which all attempts are preemptible, and on which more
// urgent work waits. It counts how many attempts it was asked for.
type crowd struct {
	*stage

	asked int
}

func (c *crowd) Victims(below int) iter.Seq[compute.Work] {
	return func(yield func(compute.Work) bool) {
		for _, n := range c.nodes {
			for _, w := range c.work[n.ID] {
				if w.Execution.Priority >= below {
					continue
				}
				if c.asked++; !yield(w) {
					return
				}
			}
		}
	}
}

// newCrowd returns nodes that are full of attempts, ten each on as many GPUs,
// and so many executions that need eight of them.
func newCrowd(nodes, urgent int) *crowd {
	rng := rand.New(rand.NewPCG(1, 2))
	c := &crowd{stage: newStage()}
	for n := range nodes {
		node := gpuNode(n+1, "t4", 10)
		c.nodes = append(c.nodes, node)
		for g := range 10 {
			c.put(1000+n*10+g, node, 1000+rng.Int64N(900_000), g)
		}
		for _, w := range c.work[node.ID] {
			w.Execution.Preemptible, w.Execution.Status = true, compute.StatusRunning
			w.Attempt.StartedAt = w.Execution.StartedAt
		}
	}
	for i := range urgent {
		e := execution(i+1, whole("t4", 8))
		e.Priority, e.Reason = 90, compute.ReasonGPUsBusy
		c.queue = append(c.queue, e)
	}
	return c
}

// TestPreemptionIsBounded bounds the cost of a pass in which much urgent work waits:
// preemptible attempts are read once, nothing is allocated for a set that is tried, and
// a full plan ends the search.
func TestPreemptionIsBounded(t *testing.T) {
	c := newCrowd(60, 40)
	plan := scheduler.Pack(c)
	if want := scheduler.MaxPreemptions / 8 * 8; len(plan.Preemptions) != want {
		t.Fatalf("%d preemptions, want %d", len(plan.Preemptions), want)
	}
	if c.asked > 601 {
		t.Errorf("%d attempts were read, there are 600", c.asked)
	}
	p := scheduler.NewPacker()
	if allocated := testing.AllocsPerRun(1, func() { p.Pack(c) }); allocated > 5000 {
		t.Errorf("a pass allocates %.0f times", allocated)
	}
}

// TestVictimsAreSearchedOncePerShape checks that a pass searches victims for a
// shape without any only once.
func TestVictimsAreSearchedOncePerShape(t *testing.T) {
	c := newCrowd(10, 60)
	for _, w := range c.work[c.nodes[3].ID] {
		w.Execution.Preemptible = false
	}
	for _, e := range c.queue {
		e.Request = whole("t4", 10)
		e.Request.VCPUMilli -= 1000
	}
	if plan := scheduler.Pack(c); len(plan.Preemptions) != 60 {
		t.Errorf("%d preemptions, want those of six nodes", len(plan.Preemptions))
	}
	searches := scheduler.PreemptTries(c)
	if searches > 2000 {
		t.Errorf("%d sets were tried", searches)
	}
}

// TestPreemptionDoesNotRepeat holds that an execution that others were asked to
// make room for asks nobody else while they still have their grace, which may
// be longer than its own.
func TestPreemptionDoesNotRepeat(t *testing.T) {
	for _, graces := range [][2]time.Duration{
		{5 * time.Minute, 10 * time.Second}, {10 * time.Second, 5 * time.Minute}, {time.Minute, time.Minute},
	} {
		t.Run(fmt.Sprint(graces), func(t *testing.T) {
			s := newSimulation(t, []string{"t4", "t4"}, []string{"t4", "t4"}, []string{"t4"})
			s.grace(graces[0])
			var old []compute.ExecutionID
			for range 5 {
				old = append(old, s.submit("t4", preemptible))
			}
			s.run(2 * time.Minute)
			s.grace(graces[1])
			urgent := s.submit("t4", prioritized(60))
			for range 20 {
				s.run(time.Second)
			}
			asked := 0
			for _, id := range old {
				if s.asked(id) {
					asked++
				}
			}
			if asked != 1 || s.get(urgent).Epoch > 0 {
				t.Fatalf("%d attempts were preempted for one execution", asked)
			}
			another := s.submit("t4", prioritized(50))
			s.run(time.Second)
			if s.startOf(urgent); s.get(another).Epoch > 0 && s.get(another).PlacedAt < s.get(urgent).PlacedAt {
				t.Error("the room went to a lower priority")
			}
		})
	}
}

// grace sets the time after SIGTERM of executions that are submitted later.
func (s *simulation) grace(d time.Duration) {
	s.must(command.SetSettings{Term: 1, Settings: command.Settings{
		SignupGrant: 1000 * compute.Credit, Queued: 10_000, TimeoutMax: 10 * time.Hour,
		StopGrace: d, PreemptNotice: 30 * time.Second, PreemptMinRun: time.Minute, ShareHalfLife: time.Hour,
	}})
}

// BenchmarkPreemption is a pass in which 64 urgent executions wait for GPUs
// that preemptible work has.
func BenchmarkPreemption(b *testing.B) {
	for _, nodes := range []int{100, 1000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := newCrowd(nodes, 64)
			p := scheduler.NewPacker()
			for b.Loop() {
				p.Pack(c)
			}
		})
	}
}
