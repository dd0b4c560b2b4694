package scheduler_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

// mixedFleet returns n idle nodes: some with GPUs of three types, some with MIG
// slices, some without any GPU.
func mixedFleet(rng *rand.Rand, n int) []*compute.Node {
	var out []*compute.Node
	for i := range n {
		node := gpuNode(i+1, []string{"a100", "t4", "h100"}[rng.IntN(3)], []int{0, 2, 4, 8}[rng.IntN(4)])
		node.VCPUMilli += int64(rng.IntN(3)) * 16_000
		node.MemoryMiB += 64 << 10
		if len(node.GPUs) == 0 {
			node.VCPUMilli = 64_000
		}
		for g := range node.GPUs {
			node.GPUs[g].Island = g / 4
			if i%7 == 0 {
				node.GPUs[g].MIG = []string{"1g_5gb", "3g_20gb"}[g%2]
			}
		}
		out = append(out, node)
	}
	return out
}

// TestBoardRemembersNothingThatMatters lets work come and go and compares each
// choice with that of a new board. It also holds that nothing is given away twice,
// and that refused work fits nowhere.
func TestBoardRemembersNothingThatMatters(t *testing.T) {
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 9))
		nodes := mixedFleet(rng, 40)
		board := scheduler.NewBoard(slices.Values(nodes))
		requests := work(300)
		var learner compute.Learner
		var mix *compute.Mix
		type live struct {
			placed  scheduler.Placed
			request *compute.Request
		}
		var all []live
		for range 1200 {
			r := &requests[rng.IntN(1+rng.IntN(len(requests)))].Request
			if rng.IntN(10) == 0 {
				r = &compute.Request{GPUType: "t4", GPUs: 1, MilliGPU: 1000, MIG: "1g_5gb", VCPUMilli: 1000}
			}
			if learner.Learn(*r) {
				mix = learner.Mix()
				board.SetMix(mix)
			}
			scores, devices := scheduler.ScoreAll(nodes, mix, r)
			best := slices.Index(scores, slices.Min(scores))
			p, placed := board.Place(r)
			switch {
			case placed != (scores[best] < scheduler.NoFit):
				t.Fatalf("seed %d: %+v placed: %v; its best score is %d", seed, r, placed, scores[best])
			case placed && (p.Node != best || !slices.Equal(p.Devices, devices[best])):
				t.Fatalf("seed %d: %+v is on %d %v, not on %d %v", seed, r, p.Node, p.Devices, best, devices[best])
			case placed:
				occupy(t, nodes[p.Node], r, p.Devices, 1)
				all = append(all, live{p, r})
			}
			if len(all) > 0 && rng.IntN(5) < 2 {
				i := rng.IntN(len(all))
				board.Release(all[i].placed)
				occupy(t, nodes[all[i].placed.Node], all[i].request, all[i].placed.Devices, -1)
				all = slices.Delete(all, i, i+1)
			}
		}
		for _, a := range all {
			board.Release(a.placed)
		}
		if f := board.Fragmentation(); f != 0 {
			t.Errorf("seed %d: %f of an idle cluster is in fragments", seed, f)
		}
	}
}

// occupy takes the capacity of a request from a node, or gives it back.
func occupy(t *testing.T, n *compute.Node, r *compute.Request, devices []int, sign int) {
	t.Helper()
	n.UsedVCPUMilli += int64(sign) * r.VCPUMilli
	n.UsedMemoryMiB += int64(sign) * r.MemoryMiB
	if len(devices) != r.GPUs || n.UsedVCPUMilli > n.VCPUMilli || n.UsedMemoryMiB > n.MemoryMiB {
		t.Fatalf("%+v does not fit on %+v, devices %v", r, n, devices)
	}
	for i, d := range devices {
		g := &n.GPUs[d]
		g.UsedMilli += sign * r.MilliGPU
		if g.UsedMilli < 0 || g.UsedMilli > compute.WholeGPU || !g.Is(*r) || slices.Contains(devices[:i], d) {
			t.Fatalf("%+v may not be on %+v", r, g)
		}
	}
}

// TestCapacityChangesWhatIsScarce holds that the pressure on a type follows the
// nodes: while most of a type is drained, work that could go elsewhere does.
func TestCapacityChangesWhatIsScarce(t *testing.T) {
	var nodes []*compute.Node
	for i := range 20 {
		nodes = append(nodes, gpuNode(i+1, []string{"a100", "h100"}[i%2], 4))
	}
	var learner compute.Learner
	anything := compute.Request{GPUs: 1, MilliGPU: 1000, VCPUMilli: 4000, MemoryMiB: 8192}
	for range 32 {
		learner.Learn(whole("a100", 1))
		learner.Learn(anything)
	}
	first := func() string {
		board := scheduler.NewBoard(slices.Values(nodes))
		board.SetMix(learner.Mix())
		p, ok := board.Place(&anything)
		if !ok {
			t.Fatal("nothing fits on an idle cluster")
		}
		return nodes[p.Node].GPUs[0].Type
	}
	if got := first(); got != "h100" {
		t.Errorf("what could go anywhere is on a %s, which half of the work needs", got)
	}
	for range 200 {
		learner.Learn(whole("h100", 1))
	}
	for i := range 20 {
		nodes[i].Drained = i%2 == 1 && i > 1
	}
	if got := first(); got != "a100" {
		t.Errorf("what could go anywhere is on a %s, of which most is drained", got)
	}
}

// TestMemoryBoundWorkKeepsGPUsFed holds that memory counts as vCPU does: where
// work with GPUs needs much of it, CPU-only work goes where it strands none.
func TestMemoryBoundWorkKeepsGPUsFed(t *testing.T) {
	nodes := []*compute.Node{gpuNode(1, "t4", 4), used(gpuNode(2, "t4", 4), 8, 8, 1000, 1000)}
	var learner compute.Learner
	for range 16 {
		learner.Learn(compute.Request{GPUType: "t4", GPUs: 1, MilliGPU: 1000, VCPUMilli: 1000, MemoryMiB: 60 << 10})
	}
	board := scheduler.NewBoard(slices.Values(nodes))
	board.SetMix(learner.Mix())
	for i := range 2 {
		p, ok := board.Place(&compute.Request{VCPUMilli: 1000, MemoryMiB: 60 << 10})
		if !ok || p.Node != 1 {
			t.Errorf("%d: on node %d, want the one with memory to spare", i, p.Node)
		}
	}
}

// TestEntriesAreCountedWhenNodesCome holds that the limit of a board's entries counts
// the present entries of its trees, not those that they had when they were made.
func TestEntriesAreCountedWhenNodesCome(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 1))
	w.submit(work(50)...)
	p := scheduler.NewPacker()
	for _, nodes := range []int{1, 200, 7} {
		for n := 1; n <= 200; n++ {
			if n <= nodes {
				w.setNode(gpuNode(n, "t4", 1))
			} else {
				w.removeNode(gpuNode(n, "t4", 1))
			}
		}
		p.Pack(w.view())
		if counted, actual := scheduler.Entries(p); counted != actual || actual < 10*nodes {
			t.Errorf("%d nodes: %d entries are counted, there are %d", nodes, counted, actual)
		}
	}
}
