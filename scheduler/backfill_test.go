package scheduler_test

import (
	"fmt"
	"testing"

	"berth/compute"
	"berth/scheduler"
)

func TestBackfillLeavesTheHeadItsPlace(t *testing.T) {
	tests := []struct {
		name  string
		nodes []*compute.Node
		queue []compute.Request // The first is blocked.
		want  string
	}{
		{
			"a small one may not take the GPU that the head waits for",
			[]*compute.Node{used(gpuNode(1, "t4", 2), 8, 64, 1000)},
			[]compute.Request{whole("t4", 2), whole("t4", 1)},
			"[]",
		},
		{
			"a small one may use another node",
			[]*compute.Node{used(gpuNode(1, "t4", 2), 8, 64, 1000), gpuNode(2, "t4", 1)},
			[]compute.Request{whole("t4", 2), whole("t4", 1)},
			"[2@n2[0]]",
		},
		{
			"the head waits where the least is missing",
			[]*compute.Node{used(gpuNode(1, "t4", 4), 16, 128, 1000, 1000), used(gpuNode(2, "t4", 4), 8, 64, 1000)},
			[]compute.Request{whole("t4", 4), whole("t4", 1)},
			"[2@n1[2]]",
		},
		{
			"CPU-only work may use what the head leaves over",
			[]*compute.Node{edited(used(gpuNode(1, "t4", 2), 8, 64, 1000), func(n *compute.Node) { n.VCPUMilli += 10_000; n.MemoryMiB += 256 << 10 })},
			[]compute.Request{whole("t4", 2), cpus(2), cpus(1)},
			"[2@n1]",
		},
		{
			"another GPU type is not held back",
			[]*compute.Node{used(gpuNode(1, "t4", 1), 8, 64, 1000), gpuNode(2, "h100", 1)},
			[]compute.Request{whole("t4", 1), whole("h100", 1)},
			"[2@n2[0]]",
		},
		{
			"a share may go beside the promised GPU",
			[]*compute.Node{edited(used(gpuNode(1, "t4", 2), 8, 64, 900, 500), func(n *compute.Node) { n.VCPUMilli, n.MemoryMiB = 64000, 1<<20 })},
			[]compute.Request{whole("t4", 1), share("t4", 500), share("t4", 100)},
			"[3@n1[0]]",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.nodes...)
			for i, r := range tt.queue {
				w.submit(execution(i+1, r))
			}
			v := w.view()
			plan := scheduler.Pack(v)
			if got := fmt.Sprint(where(v, plan)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			w.commit(plan)
		})
	}
}

// TestHeadStartsUnderAFloodOfSmallWork is the promise of the claims: whatever
// keeps arriving behind it, the head starts once the work that was there when
// it became the head has ended.
func TestHeadStartsUnderAFloodOfSmallWork(t *testing.T) {
	w := newWorld(t, gpuNode(1, "t4", 4), gpuNode(2, "t4", 4))
	next := 1
	small := func(n int) {
		for range n {
			w.submit(execution(next, whole("t4", 1)))
			next++
		}
	}
	small(8)
	w.pack()
	head := execution(next, whole("t4", 4))
	next++
	w.submit(head)
	for round := range 9 {
		small(3)
		w.pack()
		if _, started := w.live[head.ID]; started {
			return
		}
		oldest := compute.ExecutionID{}
		for e := range w.live {
			if oldest.IsZero() || w.known[e].SubmitIndex < w.known[oldest].SubmitIndex {
				oldest = e
			}
		}
		t.Logf("round %d: %d live, the oldest ends", round, len(w.live))
		w.finish(oldest)
	}
	w.pack()
	if _, started := w.live[head.ID]; !started {
		t.Error("the head was starved by smaller work behind it")
	}
}
