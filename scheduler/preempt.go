package scheduler

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"berth/compute"
)

// Limits of preemption.
const (
	MaxPreemptions = 64 // Of one plan.

	// exactVictims is among how many attempts of one node the cheapest set is
	// searched; beyond, the dearest are let off one by one.
	exactVictims = 10
)

// victim is an attempt that may be asked to make room.
type victim struct {
	work compute.Work
	back release
	cost uint64 // Price × milliseconds of work that is lost.
}

// eviction is a set of attempts on one node, and what it costs.
type eviction struct {
	node    int
	victims []victim
	cost    uint64
}

// less reports whether x is cheaper than y, or as cheap with fewer attempts.
func (x *eviction) less(y *eviction) bool {
	return y.node < 0 || cmp.Or(cmp.Compare(x.cost, y.cost), cmp.Compare(len(x.victims), len(y.victims))) < 0
}

// victims returns, by node, the attempts that may make room for work of a
// priority, and the nodes that have any, in the order of the slots.
func (s *pass) victims(priority int) (map[int][]victim, []int) {
	now, minRun := s.view.Now(), s.view.MinRun()
	byNode, nodes := map[int][]victim{}, []int(nil)
	for w := range s.view.Victims(priority) {
		if s.evicted[w.Execution.ID] || !w.Yields(priority, now, minRun) {
			continue
		}
		node, known := s.nodeAt(w.Attempt.Node)
		if !known {
			continue
		}
		if byNode[node] == nil {
			nodes = append(nodes, node)
		}
		byNode[node] = append(byNode[node], victim{
			work: w, back: releaseOf(&w, s.packer.slots[node].node), cost: lost(&w, now),
		})
	}
	slices.Sort(nodes)
	return byNode, nodes
}

// nodeAt returns the position of a node among the slots.
func (s *pass) nodeAt(id compute.NodeID) (int, bool) {
	if s.positions == nil {
		s.positions = make(map[compute.NodeID]int, len(s.packer.slots))
		for i := range s.packer.slots {
			s.positions[s.packer.slots[i].node.ID] = i
		}
	}
	i, known := s.positions[id]
	return i, known
}

// lost returns what an attempt's work so far is worth.
func lost(w *compute.Work, now compute.Instant) uint64 {
	hi, lo := bits.Mul64(uint64(w.Execution.FairPrice()), uint64(w.Attempt.Ran(now).Milliseconds()))
	if hi > 0 {
		return 1 << 62
	}
	return min(lo, 1<<62)
}

// vacating returns until when room is made that is asked for now.
func (s *pass) vacating(grace time.Duration) compute.Instant {
	return s.view.Now().Add(s.view.PreemptNotice() + grace + compute.EndAllowance)
}

// mayPreempt reports whether some attempt may have to make room for e, now or
// later.
func (s *pass) mayPreempt(e *compute.Execution) bool {
	may, known := s.outranks[e.Priority]
	if !known {
		for range s.view.Victims(e.Priority) {
			may = true
			break
		}
		s.outranks[e.Priority] = may
	}
	return may
}

// preempt asks the cheapest attempts of lower priority to make room for e,
// promises it their room, and reports whether there are such. Only work of a
// strictly lower priority makes room: whoever is put back to the queue can
// never push out who took its place.
func (s *pass) preempt(e *compute.Execution, q *shape) bool {
	best := eviction{node: -1}
	byNode, nodes := s.victims(e.Priority)
	for _, node := range nodes {
		if x := s.cheapest(node, q, byNode[node]); len(x.victims) > 0 && x.less(&best) {
			best = x
		}
	}
	if best.node < 0 || len(s.plan.Preemptions)+len(best.victims) > MaxPreemptions {
		return false
	}
	then, grace := s.copyOf(best.node), time.Duration(0)
	for i := range best.victims {
		v := &best.victims[i]
		then.put(&v.back.shape, v.back.devices)
		grace = max(grace, v.work.Execution.StopGrace)
		s.evicted[v.work.Execution.ID] = true
		s.plan.Preemptions = append(s.plan.Preemptions, compute.Preemption{
			Execution: v.work.Execution.ID, Epoch: v.work.Attempt.Epoch, For: e.ID,
		})
	}
	s.reserve(q, reservation{node: best.node, at: s.vacating(grace), devices: then.free(q)})
	return true
}

// cheapest returns the cheapest of the attempts on a node without which q fits
// there: exactly among few, by letting off the dearest among many. It is empty
// when all of them are not enough.
func (s *pass) cheapest(node int, q *shape, all []victim) eviction {
	out := eviction{node: node}
	why := s.packer.slots[node].refusal(q)
	if why != gpusBusy && why != resourcesBusy || !s.fitsWithout(node, q, all) {
		return out
	}
	slices.SortStableFunc(all, func(a, b victim) int { return cmp.Compare(b.cost, a.cost) })
	kept := slices.Clone(all)
	for i := 0; i < len(kept); { // The dearest first.
		if fewer := slices.Delete(slices.Clone(kept), i, i+1); s.fitsWithout(node, q, fewer) {
			kept = fewer
		} else {
			i++
		}
	}
	out.victims, out.cost = kept, costOf(kept)
	if len(all) > exactVictims {
		return out
	}
	for set := uint(1); set < 1<<len(all); set++ {
		var some []victim
		for i := range all {
			if set&(1<<i) != 0 {
				some = append(some, all[i])
			}
		}
		x := eviction{node, some, costOf(some)}
		if x.less(&out) && s.fitsWithout(node, q, some) {
			out = x
		}
	}
	return out
}

func costOf(some []victim) (cost uint64) {
	for i := range some {
		cost += some[i].cost
	}
	return cost
}

// fitsWithout reports whether q fits on a node once some attempts have left.
func (s *pass) fitsWithout(node int, q *shape, some []victim) bool {
	then := s.copyOf(node)
	for i := range some {
		then.put(&some[i].back.shape, some[i].back.devices)
	}
	return then.fits(q)
}
