package scheduler_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/scheduler"
)

// fleet returns a world of n nodes of the shapes that large fleets have, about
// half full of work of many shapes.
func fleet(tb testing.TB, n int) *world {
	rng := rand.New(rand.NewPCG(42, 1))
	w := newWorld(tb)
	for i := range n {
		node := gpuNode(i+1, []string{"a100", "t4", "h100"}[i%3], []int{8, 2, 8, 4}[i%4])
		node.VCPUMilli += int64(i%5) * 8000
		for g := range node.GPUs {
			if rng.IntN(2) == 0 {
				node.GPUs[g].UsedMilli = []int{1000, 500, 810, 250}[rng.IntN(4)]
				node.UsedVCPUMilli += 6000
				node.UsedMemoryMiB += 32 << 10
			}
		}
		w.nodes = append(w.nodes, node)
	}
	return w
}

// work returns n executions of some 100 shapes.
func work(n int) []*compute.Execution {
	rng := rand.New(rand.NewPCG(43, 1))
	out := make([]*compute.Execution, n)
	for i := range out {
		gpuType := []string{"a100", "t4", "h100"}[rng.IntN(3)]
		r := whole(gpuType, 1+rng.IntN(2))
		switch rng.IntN(4) {
		case 0:
			r = share(gpuType, 50*(1+rng.IntN(19)))
		case 1:
			r = cpus(1 + rng.IntN(8))
		}
		out[i] = execution(i+1, r)
	}
	return out
}

// BenchmarkDecision is one placement among many in a plan, with the scores of
// earlier plans remembered.
func BenchmarkDecision(b *testing.B) {
	for _, nodes := range []int{1213, 12130} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := fleet(b, nodes)
			v := w.view()
			v.queue = work(scheduler.MaxAssignments)
			p := scheduler.NewPacker()
			p.Pack(v)
			decisions := 0
			for b.Loop() {
				decisions += len(p.Pack(v).Assignments)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(decisions), "ns/decision")
		})
	}
}

// BenchmarkArrival measures one execution that comes and one that goes on a cluster
// that is nine tenths full, with a mix that is learned from the arrivals.
func BenchmarkArrival(b *testing.B) {
	for _, nodes := range []int{1213, 12130, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := newWorld(b)
			gpus := 0
			for i := range nodes {
				n := gpuNode(i+1, []string{"a100", "t4", "h100"}[i%3], []int{8, 2, 8, 4}[i%4])
				n.VCPUMilli += int64(i%5) * 8000
				gpus += len(n.GPUs)
				w.nodes = append(w.nodes, n)
			}
			board := scheduler.NewBoard(slices.Values(w.nodes))
			requests := work(4096)
			var learner compute.Learner
			var placed []scheduler.Placed
			arrive := func(i int) int {
				r := &requests[i%len(requests)].Request
				if learner.Learn(*r) {
					board.SetMix(learner.Mix())
				}
				if p, ok := board.Place(r); ok {
					placed = append(placed, p)
				}
				return r.GPUs * r.MilliGPU
			}
			n := 0
			for demand := 0; demand < gpus*900; n++ {
				demand += arrive(n)
			}
			for b.Loop() {
				arrive(n)
				board.Release(placed[0])
				placed = placed[1:]
				n++
			}
		})
	}
}

// BenchmarkLonePlacement is a plan for one execution that has just arrived.
func BenchmarkLonePlacement(b *testing.B) {
	for _, nodes := range []int{3, 1213, 12130} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			v := fleet(b, nodes).view()
			v.queue = work(1)
			p := scheduler.NewPacker()
			for b.Loop() {
				p.Pack(v)
			}
		})
	}
}

// BenchmarkFullCluster is a pass over a long queue of which nothing fits.
func BenchmarkFullCluster(b *testing.B) {
	w := newWorld(b, used(gpuNode(1, "t4", 2), 16, 128, 1000, 1000), used(gpuNode(2, "h100", 1), 8, 64, 1000))
	v := w.view()
	for _, e := range work(10_000) {
		e.Request.GPUType = map[string]string{"a100": "h100", "": ""}[e.Request.GPUType]
		e.Reason = compute.ReasonGPUsBusy
		v.queue = append(v.queue, e)
	}
	p := scheduler.NewPacker()
	for b.Loop() {
		p.Pack(v)
	}
}

// waitingCluster returns a full cluster of a real state machine behind which n
// executions wait for GPUs: of two organizations, two priorities, five profiles
// and so many time limits. Their reasons are recorded.
func waitingCluster(tb testing.TB, n, limits int) *cluster {
	c := newCluster(tb, []string{"h100", "h100"}, []string{"t4", "t4", "t4", "t4"}, []string{"a100", "a100"}, []string{"l40s"})
	c.must(command.SetSettings{Term: 1, Settings: command.Settings{
		SignupGrant: 1_000_000 * compute.Credit, Queued: 1_000_000, TimeoutMax: 10 * time.Hour,
		StopGrace: 10 * time.Second, PreemptNotice: 30 * time.Second, PreemptMinRun: time.Minute, ShareHalfLife: time.Hour,
	}})
	for _, profile := range []string{"h100.2x", "t4.4x", "a100.2x"} {
		c.submit(profile, limited(time.Hour))
	}
	c.pack()
	users := []command.Actor{c.user("one"), c.user("two")}
	rng := rand.New(rand.NewPCG(44, 1))
	for range n {
		c.actor = users[rng.IntN(len(users))]
		profile := []string{"h100", "h100.2x", "t4.500m", "t4.2x", "a100"}[rng.IntN(5)]
		limit := 10*time.Minute + time.Duration(rng.IntN(limits))*time.Second
		c.submit(profile, prioritized(10*rng.IntN(2)), limited(limit))
	}
	c.pack()
	return c
}

// BenchmarkLongQueue is a pass over executions of which none fits: again at the
// same view, with one more that has to wait, and with one that is placed. With
// many time limits nearly every execution is in a class of its own.
func BenchmarkLongQueue(b *testing.B) {
	for _, q := range []struct{ n, limits int }{{0, 1}, {20_000, 3}, {20_000, 20_000}} {
		c := waitingCluster(b, q.n, q.limits)
		p := scheduler.NewPacker()
		p.Pack(c.machine.View())
		b.Run(fmt.Sprintf("waiting=%d/limits=%d/same", q.n, q.limits), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.Pack(c.machine.View())
			}
		})
		for name, profile := range map[string]string{"submit": "t4", "start": "cpu"} {
			b.Run(fmt.Sprintf("waiting=%d/limits=%d/%s", q.n, q.limits, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					id := c.submit(profile)
					v := c.machine.View()
					b.StartTimer()
					plan := p.Pack(v)
					b.StopTimer()
					c.must(command.CommitPlan{Term: 1, ViewIndex: v.Index(), Plan: plan})
					if profile == "cpu" {
						c.finish(id, time.Millisecond)
					}
					b.StartTimer()
				}
			})
		}
	}
}
