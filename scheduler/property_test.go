package scheduler_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
	"berth/scheduler"
)

// history drives a world at random and checks every plan on the way.
type history struct {
	*world
	rng    *rand.Rand
	next   int               // Number of the next execution.
	joined int               // Nodes that ever joined.
	packer *scheduler.Packer // Remembers; must not matter.
}

// gpuTypesOf are the types that random nodes have and random work asks for;
// no node has the last.
var gpuTypesOf = []string{"t4", "h100", "b200"}

func newHistory(tb testing.TB, seed uint64) *history {
	h := &history{rng: rand.New(rand.NewPCG(seed, 1)), next: 1, packer: scheduler.NewPacker()}
	h.world = newWorld(tb)
	for i := range 1 + h.rng.IntN(8) {
		h.join(2 * i)
	}
	for org := range 3 {
		if n := h.rng.IntN(20); n > 0 {
			h.limits[orgID(org)] = n
		}
		h.shares[orgID(org)] = compute.Share{
			Used: uint64(h.rng.IntN(3)) * 1e9, Weight: []int{50, 100, 300}[h.rng.IntN(3)],
		}
		if h.rng.IntN(3) == 0 {
			h.quotas = append(h.quotas,
				compute.Quota{Org: orgID(org), Tag: "red", Concurrent: 1 + h.rng.IntN(5), MilliGPU: int64(h.rng.IntN(4)) * 1500},
				compute.Quota{Org: orgID(org), Key: keyID(1), Concurrent: h.rng.IntN(5), MilliGPU: int64(h.rng.IntN(5)) * 2000})
		}
	}
	return h
}

// join adds a random node, the n-th by id.
func (h *history) join(n int) {
	h.joined++
	h.setNode(h.node(n + 1))
}

// node returns a random node, some with GPUs of two types, odd vCPU, broken or
// MIG GPUs.
func (h *history) node(n int) *compute.Node {
	node := gpuNode(n, gpuTypesOf[h.rng.IntN(2)], h.rng.IntN(9))
	node.VCPUMilli += int64(h.rng.IntN(5)) * 1500
	node.MemoryMiB += int64(h.rng.IntN(3)) * 5000
	if node.VCPUMilli == 0 || node.MemoryMiB == 0 {
		node.VCPUMilli, node.MemoryMiB = 16_000, 64<<10
	}
	for i := range node.GPUs {
		node.GPUs[i].Island = i / 4 * h.rng.IntN(2)
		node.GPUs[i].VRAMMiB = []int64{81559, 40 << 10}[h.rng.IntN(8)/7]
		switch g := &node.GPUs[i]; h.rng.IntN(20) {
		case 0:
			g.Health = compute.HealthFailed
		case 1:
			g.MIG = "enabled"
		case 2:
			g.MIG = "1g_5gb"
		case 3:
			g.Type = gpuTypesOf[h.rng.IntN(2)]
		case 4:
			g.MIG = "disabled"
		}
	}
	return node
}

func (h *history) request() compute.Request {
	gpuType := gpuTypesOf[min(h.rng.IntN(20)/9, 2)]
	r := whole(gpuType, 1<<h.rng.IntN(4))
	switch h.rng.IntN(5) {
	case 0, 1:
		r = share(gpuType, 1+h.rng.IntN(999))
	case 2:
		r = cpus(1 + h.rng.IntN(9))
	case 3:
		r = whole(gpuType, 1)
		if h.rng.IntN(4) == 0 {
			r.MIG = "1g_5gb"
		}
	case 4:
		if h.rng.IntN(2) == 0 {
			r.GPUType = ""
			r.AnyOf = [][]string{nil, {"h100", "t4"}, {"b200", "t4"}}[h.rng.IntN(3)]
			r.Ranked = len(r.AnyOf) > 0 && h.rng.IntN(2) == 0
		}
	}
	if r.IsGPU() && h.rng.IntN(4) == 0 {
		r.MinVRAMMiB = []int64{40 << 10, 80 << 10, 141 << 10}[h.rng.IntN(8)/3]
	}
	return r
}

// step changes something.
func (h *history) step() {
	switch k := h.rng.IntN(10); {
	case k < 4:
		for range 1 + h.rng.IntN(6) {
			e := execution(h.next, h.request())
			e.Org, e.Priority = orgID(h.rng.IntN(3)), h.rng.IntN(3)
			e.Price = compute.Price(h.rng.IntN(4) * 300)
			e.Tags = [][]string{nil, {"red"}, {"blue", "red"}}[h.rng.IntN(3)]
			if h.rng.IntN(2) == 0 {
				e.Key = keyID(1)
			}
			h.submit(e)
			h.next++
		}
	case k < 8:
		for _, e := range h.alive() {
			if h.rng.IntN(3) == 0 {
				h.finish(e)
			}
		}
	case k < 9 && len(h.nodes) > 0:
		n := *h.nodes[h.rng.IntN(len(h.nodes))]
		n.Drained, n.State = h.rng.IntN(3) == 0, compute.NodeState(h.rng.IntN(4)/3)
		h.setNode(&n)
		if h.rng.IntN(2) == 0 {
			h.removeNode(&n)
		}
	default:
		h.join(2*h.joined - 15*h.rng.IntN(2)) // Behind the others, or among them.
	}
}

// alive returns the live executions in the order of their ids: the same seed
// must make the same history, and a map has an order of its own each time.
func (h *history) alive() []compute.ExecutionID {
	return slices.SortedFunc(maps.Keys(h.live), func(a, b compute.ExecutionID) int {
		return bytes.Compare(a.UUID[:], b.UUID[:])
	})
}

// check packs the view every way there is, compares, and commits.
func (h *history) check() {
	h.tb.Helper()
	v := h.view()
	plan := scheduler.Pack(v)
	if again := scheduler.Pack(v); !reflect.DeepEqual(again, plan) {
		h.tb.Fatalf("the same view led to two plans:\n%+v\n%+v", plan, again)
	}
	if remembered := h.packer.Pack(v); !reflect.DeepEqual(remembered, plan) {
		h.tb.Fatalf("memory changed the plan:\n%+v\nnot\n%+v", remembered, plan)
	}
	if all := scheduler.PackAll(scheduler.NewPacker(), v); !reflect.DeepEqual(all, plan) {
		h.tb.Fatalf("skipping changed the plan:\n%+v\nnot\n%+v", plan, all)
	}
	want := new(oracle).pack(v, scheduler.MaxAssignments)
	if len(want) != len(plan.Assignments) || len(want) > 0 && !reflect.DeepEqual(want, plan.Assignments) {
		h.tb.Fatalf("the rules lead to\n%+v\nnot to\n%+v", want, plan.Assignments)
	}
	known := map[compute.ExecutionID]compute.Reason{}
	for _, e := range v.queue {
		known[e.ID] = e.Reason
	}
	for _, x := range plan.Waiting {
		if known[x.Execution] == x.Reason {
			h.tb.Fatalf("execution %s waits for %v already", x.Execution, x.Reason)
		}
	}
	h.commit(plan)
}

func TestPackKeepsItsRulesInAnyHistory(t *testing.T) {
	// In the first three of these, executions with and without a preference among
	// the same types are blocked. In the others a blocked one may have either of two
	// types of a node.
	for seed := range uint64(100) {
		keepsRules(t, seed)
	}
	for _, seed := range []uint64{566, 2238, 2547, 1649570535130552870, 5413700254166614360} {
		keepsRules(t, seed)
	}
}

// keepsRules checks the plans of the history of a seed, which a failure names.
func keepsRules(t *testing.T, seed uint64) {
	t.Helper()
	t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
		h := newHistory(t, seed)
		for range 40 {
			h.step()
			h.check()
		}
	})
}

func FuzzPack(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed, uint8(20))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) {
		h := newHistory(t, seed)
		for range steps {
			h.step()
			h.check()
		}
	})
}

// TestEverythingEnds runs random work to its end: whatever some node could
// host is placed, nothing else is.
func TestEverythingEnds(t *testing.T) {
	for seed := range uint64(30) {
		h := newHistory(t, seed)
		for range 20 {
			h.step()
		}
		for range 500 {
			h.check()
			if len(h.live) == 0 {
				break
			}
			for _, e := range h.alive() {
				h.finish(e)
			}
		}
		for _, e := range h.view().queue {
			if e.Reason != compute.ReasonNeverFits && e.Reason != compute.ReasonNodesDown && e.Reason != compute.ReasonQuotaGPUs {
				t.Errorf("seed %d: execution %d of %+v waits for ever: %v", seed, e.SubmitIndex, e.Request, e.Reason)
			}
		}
	}
}

func TestPlanStaysSmallEncoded(t *testing.T) {
	plan := compute.Plan{}
	var id compute.NodeID
	for i := range id.UUID {
		id.UUID[i] = 0xff
	}
	for i := range scheduler.MaxAssignments {
		a := compute.Assignment{Execution: executionID(i), Node: id, Choice: compute.Choice{
			Score: math.MaxInt64, RunnerUp: id, RunnerUpScore: math.MaxInt64,
		}}
		for n := range scheduler.MaxShares / scheduler.MaxAssignments {
			a.GPUs = append(a.GPUs, compute.GPUShare{
				GPU: compute.GPUID(fmt.Sprintf("GPU-%08d-0000-0000-0000-%012d", i, n)), Milli: compute.WholeGPU,
			})
		}
		plan.Assignments = append(plan.Assignments, a)
	}
	for i := range scheduler.MaxShares % scheduler.MaxAssignments {
		plan.Assignments[i].GPUs = append(plan.Assignments[i].GPUs, plan.Assignments[i].GPUs[0])
	}
	for i := range scheduler.MaxWaiting {
		plan.Waiting = append(plan.Waiting, compute.Waiting{Execution: executionID(i), Reason: compute.ReasonGPUsBusy})
	}
	data, err := cbor.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 200<<10 {
		t.Errorf("the largest plan takes %d bytes, want at most 200 KiB", len(data))
	}
}
