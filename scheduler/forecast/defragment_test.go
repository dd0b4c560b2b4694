package forecast_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	"berth/compute"
	"berth/scheduler"
	"berth/scheduler/forecast"
)

// stage is a view with running attempts. It only has the parts of a view that the
// search for moves reads.
type stage struct {
	scheduler.View

	now   compute.Instant
	nodes []*compute.Node
	queue []*compute.Execution
	work  map[compute.NodeID][]compute.Work

	quotas []compute.Quota
	live   []*compute.Execution // Executions that count in the quotas.
}

// org is the organization of all executions.
var org = compute.OrgID{UUID: id(1)}

func (s *stage) Now() compute.Instant                    { return s.now }
func (s *stage) Work(n compute.NodeID) []compute.Work    { return s.work[n] }
func (s *stage) Ended() iter.Seq[*compute.Execution]     { return slices.Values([]*compute.Execution{}) }
func (s *stage) target() *compute.Execution              { return s.queue[0] }
func (s *stage) Nodes() iter.Seq[*compute.Node]          { return slices.Values(s.nodes) }
func (s *stage) Quotas(compute.OrgID) []compute.Quota    { return s.quotas }
func (s *stage) holds(n *compute.Node, g int, milli int) { n.GPUs[g].UsedMilli += milli }

// put starts an execution on given GPUs of a node, lost milliseconds ago.
func (s *stage) put(n int, r compute.Request, node *compute.Node, lost int64, devices ...int) {
	e := execution(n, r)
	e.Price, e.StartedAt = 1000, s.now-compute.Instant(lost)
	a := &compute.Attempt{Execution: e.ID, Node: node.ID, PlacedAt: e.StartedAt}
	for _, d := range devices {
		a.GPUs = append(a.GPUs, compute.GPUShare{GPU: node.GPUs[d].ID, Milli: r.MilliGPU})
		s.holds(node, d, r.MilliGPU)
	}
	node.UsedVCPUMilli += r.VCPUMilli
	node.UsedMemoryMiB += r.MemoryMiB
	s.work[node.ID] = append(s.work[node.ID], compute.Work{Attempt: a, Execution: e})
}

func (s *stage) Load(q compute.Quota) (l compute.Load) {
	for _, e := range s.live {
		if q.AppliesTo(e) {
			l.Attempts++
			l.MilliGPU += e.Request.HeldMilliGPU()
		}
	}
	return l
}

func newStage(nodes ...*compute.Node) *stage {
	return &stage{nodes: nodes, now: 1_000_000, work: map[compute.NodeID][]compute.Work{}}
}

// gpuNode returns an idle node with count GPUs of a type, 8 vCPU and 64 GiB
// for each. It is the n-th in the order of nodes.
func gpuNode(n int, gpuType string, count int) *compute.Node {
	node := cpuNode(n, 8*count, 64*count)
	for i := range count {
		node.GPUs = append(node.GPUs, compute.GPU{
			ID: compute.GPUID(fmt.Sprintf("SIM-%d-%d", n, i)), Index: i, Type: gpuType,
		})
	}
	return node
}

// cpuNode returns an idle node without GPUs.
func cpuNode(n, vcpu, memoryGiB int) *compute.Node {
	return &compute.Node{
		ID: compute.NodeID{UUID: id(n)}, Name: fmt.Sprintf("n%d", n),
		VCPUMilli: int64(vcpu) * 1000, MemoryMiB: int64(memoryGiB) << 10,
	}
}

// id returns a distinct UUID for n that sorts as n does.
func id(n int) (u compute.UUID) {
	binary.BigEndian.PutUint64(u[8:], uint64(n))
	u[0] = 1
	return u
}

// execution returns a queued execution, the n-th in submit order.
func execution(n int, r compute.Request) *compute.Execution {
	return &compute.Execution{
		ID: compute.ExecutionID{UUID: id(n)}, Org: org, Status: compute.StatusQueued, SubmitIndex: uint64(n), Request: r,
	}
}

// whole returns a request of count GPUs with their share of the node.
func whole(gpuType string, count int) compute.Request {
	return compute.Request{
		GPUType: gpuType, GPUs: count, MilliGPU: compute.WholeGPU,
		VCPUMilli: int64(count) * 8000, MemoryMiB: int64(count) * 64 << 10,
	}
}

// share returns a request of a part of one GPU.
func share(gpuType string, milli int) compute.Request {
	return compute.Request{
		GPUType: gpuType, GPUs: 1, MilliGPU: milli,
		VCPUMilli: int64(milli) * 8, MemoryMiB: int64(milli) * 64 << 10 / 1000,
	}
}

// cpus returns a CPU-only request with 2 GiB for each vCPU.
func cpus(n int) compute.Request {
	return compute.Request{VCPUMilli: int64(n) * 1000, MemoryMiB: int64(n) << 11}
}

func TestDefragmentMovesTheCheapest(t *testing.T) {
	a, b, c := gpuNode(1, "t4", 2), gpuNode(2, "t4", 2), gpuNode(3, "t4", 2)
	s := newStage(a, b, c)
	s.put(11, whole("t4", 1), a, 9000, 0)
	s.put(12, whole("t4", 1), b, 4000, 1)
	s.put(13, whole("t4", 2), c, 10, 0, 1)
	s.queue = []*compute.Execution{execution(1, whole("t4", 2))}
	got := forecast.Defragment(t.Context(), s, s.target())
	if got == nil || !got.Exact || got.Node != b.ID || len(got.Moves) != 1 {
		t.Fatalf("quote is %+v", got)
	}
	want := compute.Move{
		Execution: compute.ExecutionID{UUID: id(12)}, Org: org, From: b.ID, To: a.ID, Lost: 4e9, Price: 4000,
	}
	if got.Moves[0] != want || got.Price != want.Price {
		t.Errorf("got %+v, price %v; want %+v", got.Moves[0], got.Price, want)
	}
}

func TestDefragmentMovesNothingInVain(t *testing.T) {
	tests := []struct {
		name   string
		change func(*stage)
		want   string
	}{
		{"full", func(s *stage) { s.put(13, whole("t4", 1), s.nodes[1], 1, 0) }, "none"},
		{"at its limit", func(s *stage) {
			s.quotas = []compute.Quota{{Org: org, Concurrent: 1}}
			s.live = []*compute.Execution{execution(8, cpus(1))}
		}, "none"},
		{"no node of the size", func(s *stage) { s.queue[0].Request = whole("t4", 4) }, "none"},
		{"drained", func(s *stage) { s.nodes[1].Drained = true }, "none"},
		{"room already", func(s *stage) { s.queue[0].Request = whole("t4", 1) }, "0 moves"},
		{"a tag at its limit of attempts", func(s *stage) {
			s.quotas = []compute.Quota{{Org: org, Tag: "red", Concurrent: 1}}
			s.live = []*compute.Execution{execution(8, cpus(1))}
			s.live[0].Tags, s.queue[0].Tags = []string{"red"}, []string{"red"}
		}, "none"},
		{"a key at its limit of GPUs", func(s *stage) {
			s.quotas = []compute.Quota{{Org: org, Key: compute.KeyID{UUID: id(1)}, MilliGPU: 1000}}
			s.queue[0].Key = compute.KeyID{UUID: id(1)}
		}, "none"},
		{"a limit of another key", func(s *stage) {
			s.quotas = []compute.Quota{{Org: org, Key: compute.KeyID{UUID: id(2)}, MilliGPU: 1000}}
			s.queue[0].Key = compute.KeyID{UUID: id(1)}
		}, "1 moves"},
		{"one", func(*stage) {}, "1 moves"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(gpuNode(1, "t4", 2), gpuNode(2, "t4", 2))
			s.put(11, whole("t4", 1), s.nodes[0], 5, 0)
			s.put(12, whole("t4", 1), s.nodes[1], 5, 1)
			s.queue = []*compute.Execution{execution(1, whole("t4", 2))}
			tt.change(s)
			got := "none"
			if q := forecast.Defragment(t.Context(), s, s.target()); q != nil {
				got = fmt.Sprintf("%d moves", len(q.Moves))
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// TestDefragmentAgainstBruteForce compares the search with trying everything:
// all sets of attempts, and all places for them, on small clusters.
func TestDefragmentAgainstBruteForce(t *testing.T) {
	found, chains := 0, 0
	for seed := range uint64(2000) {
		s := randomStage(rand.New(rand.NewPCG(seed, 3)))
		want, possible := bruteForce(s)
		got := forecast.Defragment(t.Context(), s, s.target())
		switch {
		case (got != nil) != possible:
			t.Fatalf("seed %d: quote %+v, possible %v", seed, got, possible)
		case got == nil:
			continue
		case !got.Exact || got.Price != want.price || len(got.Moves) != want.moves:
			t.Fatalf("seed %d: %d moves for %v (exact %v), the best is %d for %v",
				seed, len(got.Moves), got.Price, got.Exact, want.moves, want.price)
		}
		found++
		for _, m := range got.Moves {
			if m.From != got.Node {
				chains++ // It made room for one that had to move.
				break
			}
		}
	}
	if found < 100 || chains < 10 {
		t.Errorf("%d quotes, %d of them with chains: the test shows little", found, chains)
	}
}

// randomStage returns a small cluster with attempts on it and one execution
// that waits.
func randomStage(rng *rand.Rand) *stage {
	var nodes []*compute.Node
	for i := range 2 + rng.IntN(2) {
		n := gpuNode(i+1, "t4", 1+rng.IntN(3))
		n.VCPUMilli -= int64(rng.IntN(2)) * 3000
		nodes = append(nodes, n)
	}
	s := newStage(nodes...)
	requests := []compute.Request{whole("t4", 1), share("t4", 500), share("t4", 300), whole("t4", 2), cpus(2), cpus(5)}
	for i := range 2 + rng.IntN(5) {
		r := requests[rng.IntN(len(requests))]
		n := nodes[rng.IntN(len(nodes))]
		if free := freeGPUs(n, &r); len(free) >= r.GPUs && n.VCPUMilli-n.UsedVCPUMilli >= r.VCPUMilli && n.MemoryMiB-n.UsedMemoryMiB >= r.MemoryMiB {
			var devices []int
			rng.Shuffle(len(free), func(a, b int) { free[a], free[b] = free[b], free[a] })
			for _, g := range free[:r.GPUs] {
				devices = append(devices, g.Index)
			}
			s.put(10+i, r, n, int64(rng.IntN(50))*1000, devices...)
		}
	}
	wanted := []compute.Request{whole("t4", 1), whole("t4", 2), whole("t4", 3), share("t4", 700), cpus(7)}
	s.queue = []*compute.Execution{execution(1, wanted[rng.IntN(len(wanted))])}
	return s
}

// freeGPUs returns the GPUs with the share of r free, the fullest first.
func freeGPUs(n *compute.Node, r *compute.Request) (free []*compute.GPU) {
	for i := range n.GPUs {
		if g := &n.GPUs[i]; r.GPUs > 0 && compute.WholeGPU-g.UsedMilli >= r.MilliGPU {
			free = append(free, g)
		}
	}
	slices.SortStableFunc(free, func(a, b *compute.GPU) int { return b.UsedMilli - a.UsedMilli })
	return free
}

// solution is the cost of a set of moves.
type solution struct {
	price compute.Credits
	moves int
}

// bruteForce returns the cheapest set of attempts after whose removal the
// execution that waits and all of them have places.
func bruteForce(s *stage) (best solution, possible bool) {
	var all []compute.Work
	for _, n := range s.nodes {
		all = append(all, s.work[n.ID]...)
	}
	for set := range 1 << len(all) {
		now := solution{}
		nodes := copies(s.nodes)
		homeless := []compute.Request{s.target().Request}
		for i, w := range all {
			if set>>i&1 == 0 {
				continue
			}
			now.moves++
			now.price += w.Execution.Price.Charge(s.now.Sub(w.Execution.StartedAt))
			homeless = append(homeless, w.Execution.Request)
			n := nodes[slices.IndexFunc(nodes, func(n *compute.Node) bool { return n.ID == w.Attempt.Node })]
			n.UsedVCPUMilli -= w.Execution.Request.VCPUMilli
			n.UsedMemoryMiB -= w.Execution.Request.MemoryMiB
			for _, g := range w.Attempt.GPUs {
				n.GPUs[slices.IndexFunc(n.GPUs, func(x compute.GPU) bool { return x.ID == g.GPU })].UsedMilli -= g.Milli
			}
		}
		better := !possible || cmp.Or(cmp.Compare(now.price, best.price), cmp.Compare(now.moves, best.moves)) < 0
		if better && placeAll(nodes, homeless) {
			best, possible = now, true
		}
	}
	return best, possible
}

func copies(nodes []*compute.Node) []*compute.Node {
	out := make([]*compute.Node, len(nodes))
	for i, n := range nodes {
		clone := *n
		clone.GPUs = slices.Clone(n.GPUs)
		out[i] = &clone
	}
	return out
}

// placeAll reports whether all requests have places at once.
func placeAll(nodes []*compute.Node, requests []compute.Request) bool {
	if len(requests) == 0 {
		return true
	}
	r := requests[0]
	for _, n := range nodes {
		if n.VCPUMilli-n.UsedVCPUMilli < r.VCPUMilli || n.MemoryMiB-n.UsedMemoryMiB < r.MemoryMiB {
			continue
		}
		for set := range 1 << len(n.GPUs) {
			if bits(set) != r.GPUs || !each(n, set, func(g *compute.GPU) bool { return g.UsedMilli+r.MilliGPU <= compute.WholeGPU }) {
				continue
			}
			hold := func(sign int) {
				n.UsedVCPUMilli += int64(sign) * r.VCPUMilli
				n.UsedMemoryMiB += int64(sign) * r.MemoryMiB
				each(n, set, func(g *compute.GPU) bool { g.UsedMilli += sign * r.MilliGPU; return true })
			}
			hold(1)
			if placeAll(nodes, requests[1:]) {
				return true
			}
			hold(-1)
		}
	}
	return false
}

func bits(set int) (n int) {
	for ; set > 0; set &= set - 1 {
		n++
	}
	return n
}

// each reports whether f holds for all GPUs in a set.
func each(n *compute.Node, set int, f func(*compute.GPU) bool) bool {
	for i := range n.GPUs {
		if set>>i&1 == 1 && !f(&n.GPUs[i]) {
			return false
		}
	}
	return true
}

// TestDefragmentIsBounded holds that the search ends where there are more sets
// of devices than anybody could look at, and says that it did; and that it ends
// with its context.
func TestDefragmentIsBounded(t *testing.T) {
	big := func() *stage {
		s := newStage()
		for n := range 4 {
			s.nodes = append(s.nodes, gpuNode(n+1, "t4", 64))
			for g := range 64 {
				s.put(1000+n*100+g, share("t4", 600), s.nodes[n], int64(1+g), g)
				s.put(5000+n*100+g, share("t4", 300), s.nodes[n], int64(1+g), g)
			}
		}
		s.queue = []*compute.Execution{execution(1, whole("t4", 8))}
		return s
	}
	s := big()
	steps, quote := forecast.DefragmentSteps(t.Context(), s, s.target())
	if steps < 1000 || steps > forecast.MaxSteps+1000 {
		t.Errorf("%d steps, the limit is %d", steps, forecast.MaxSteps)
	}
	if quote != nil && quote.Exact {
		t.Error("what was cut short is called exact")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if steps, _ := forecast.DefragmentSteps(ended, s, s.target()); steps > 5000 {
		t.Errorf("%d steps for one who has gone", steps)
	}
}
