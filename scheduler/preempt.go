package scheduler

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"

	"berth/compute"
	"berth/compute/capacity"
)

// Limits of preemption.
const (
	MaxPreemptions = 64 // Preemptions in one plan.

	// Sets of attempts that are tried: on one node for one execution, and in a
	// pass. Ten attempts have 1,024 sets. Beyond the limit the cheapest known
	// set is taken, which at worst is the greedy one.
	maxTries     = 1 << 11
	maxPassTries = 1 << 17

	maxLost = 1 << 50 // Keeps sums of lost work from overflowing.
)

// victim is an attempt that may be preempted.
type victim struct {
	work compute.Work
	back release
	cost uint64 // Price × milliseconds of lost work.
}

// victimNode is a node with the attempts there that may be preempted for the
// highest priority that asked in this pass, the cheapest first.
type victimNode struct {
	node    int
	victims []victim
}

// leaving is a node with attempts that an earlier plan preempted, and when the
// last of them has left.
type leaving struct {
	node  int
	until compute.Instant
}

// readVictims reads, once in a pass, which attempts may be preempted, the nodes
// with the cheapest attempt first, and which already are. The queue is walked
// from the highest priority down, so attempts that the first execution cannot
// preempt are out of reach for later ones too.
func (s *pass) readVictims(priority int) {
	if s.victimsRead {
		return
	}
	s.victimsRead = true
	now, minRun := s.view.Now(), s.view.MinRun()
	at, asked := map[int]int{}, map[int]compute.Instant{}
	for w := range s.view.Victims(priority) {
		node, known := s.nodeAt(w.Attempt.Node)
		switch {
		case !known:
			continue
		case !w.Attempt.PreemptAt.IsZero():
			asked[node] = max(asked[node], w.LatestEnd())
			continue
		case !w.MayBePreempted(priority, now, minRun):
			continue
		}
		i, listed := at[node]
		if !listed {
			i = len(s.victimNodes)
			at[node] = i
			s.victimNodes = append(s.victimNodes, victimNode{node: node})
		}
		s.victimNodes[i].victims = append(s.victimNodes[i].victims, victim{
			work: w, back: releaseOf(&w, s.packer.slots[node].Record), cost: lost(&w, now),
		})
	}
	for i := range s.victimNodes {
		slices.SortStableFunc(s.victimNodes[i].victims, func(a, b victim) int { return cmp.Compare(a.cost, b.cost) })
	}
	slices.SortFunc(s.victimNodes, func(a, b victimNode) int {
		return cmp.Or(cmp.Compare(a.victims[0].cost, b.victims[0].cost), cmp.Compare(a.node, b.node))
	})
	for _, node := range slices.Sorted(maps.Keys(asked)) {
		s.leaving = append(s.leaving, leaving{node, asked[node]})
	}
}

// leavesInTime reports whether q fits on some node once the attempts that were
// preempted there have left. Then no other attempt has to be preempted, however
// long their grace is.
func (s *pass) leavesInTime(e *compute.Execution, q *capacity.Shape) bool {
	s.readVictims(e.Priority)
	return slices.ContainsFunc(s.leaving, func(l leaving) bool {
		if why := s.packer.slots[l.node].refusal(q); why != gpusBusy && why != resourcesBusy {
			return false
		}
		return s.startOn(l.node, q) <= l.until
	})
}

// nodeAt returns the position of a node among the slots.
func (s *pass) nodeAt(id compute.NodeID) (int, bool) {
	if s.positions == nil {
		s.positions = make(map[compute.NodeID]int, len(s.packer.slots))
		for i := range s.packer.slots {
			s.positions[s.packer.slots[i].Record.ID] = i
		}
	}
	i, known := s.positions[id]
	return i, known
}

// lost returns the price of an attempt's work so far.
func lost(w *compute.Work, now compute.Instant) uint64 {
	hi, lo := bits.Mul64(uint64(w.Execution.FairPrice()), uint64(w.Attempt.Ran(now).Milliseconds()))
	if hi > 0 {
		return maxLost
	}
	return min(lo, maxLost)
}

// vacating returns when capacity is free whose attempts are preempted at this
// view.
func (s *pass) vacating(grace time.Duration) compute.Instant {
	return s.view.Now().Add(s.view.PreemptNotice() + grace + compute.EndAllowance)
}

// mayPreempt reports whether e outranks any preemptible attempt.
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

// preempt preempts the cheapest attempts of lower priority for e, reserves
// their capacity for it, and reports whether such attempts exist. Only strictly
// lower priorities are preempted: a preempted execution can never preempt the
// one that took its place.
func (s *pass) preempt(e *compute.Execution, q *capacity.Shape) bool {
	left := MaxPreemptions - len(s.plan.Preemptions)
	if left == 0 || s.noVictims[*q] {
		return false
	}
	s.readVictims(e.Priority)
	h := victimSearch{pass: s, q: q, priority: e.Priority, left: left, best: eviction{node: -1}}
	for i := range s.victimNodes {
		y := &s.victimNodes[i]
		if h.best.node >= 0 && y.victims[0].cost > h.best.cost {
			break
		}
		h.on(y)
	}
	if h.best.node < 0 {
		s.noVictims[*q] = true // Capacity and victims only shrink during a pass.
		return false
	}
	then, grace := s.copyOf(h.best.node), time.Duration(0)
	for _, v := range h.best.victims {
		then.Put(&v.back.shape, v.back.devices)
		grace = max(grace, v.work.Execution.StopGrace)
		s.evicted[v.work.Execution.ID] = true
		s.plan.Preemptions = append(s.plan.Preemptions, compute.Preemption{
			Execution: v.work.Execution.ID, Epoch: v.work.Attempt.Epoch, For: e.ID,
		})
	}
	s.reserve(q, reservation{node: h.best.node, at: s.vacating(grace), devices: then.FirstFree(q)})
	return true
}
