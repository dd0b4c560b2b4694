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
	MaxPreemptions = 64 // Of one plan.

	// Sets of attempts that are tried: on one node for one execution, and in
	// a pass. Ten attempts have 1,024 sets. Beyond, the cheapest set known is
	// taken: that of letting off the dearest while it still fits.
	maxTries     = 1 << 11
	maxPassTries = 1 << 17

	maxLost = 1 << 50 // Sums of what is lost do not overflow.
)

// victim is an attempt that may be asked to make room.
type victim struct {
	work compute.Work
	back release
	cost uint64 // Price × milliseconds of work that is lost.
}

// yielding is a node with the attempts there that may make room for work of
// the highest priority that asked in this pass, the cheapest first.
type yielding struct {
	node    int
	victims []victim
}

// leaving is a node with attempts that were asked to make room by an earlier
// plan, and until when the last of them has gone.
type leaving struct {
	node  int
	until compute.Instant
}

// readVictims reads, once in a pass, who may make room, the nodes with the
// cheapest attempt first, and who was asked already. The queue is walked from
// the highest priority down: what is not under the priority of the first who
// asks is not under any later one.
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
		case !w.Yields(priority, now, minRun):
			continue
		}
		i, listed := at[node]
		if !listed {
			i = len(s.yielding)
			at[node] = i
			s.yielding = append(s.yielding, yielding{node: node})
		}
		s.yielding[i].victims = append(s.yielding[i].victims, victim{
			work: w, back: releaseOf(&w, s.packer.slots[node].Record), cost: lost(&w, now),
		})
	}
	for i := range s.yielding {
		slices.SortStableFunc(s.yielding[i].victims, func(a, b victim) int { return cmp.Compare(a.cost, b.cost) })
	}
	slices.SortFunc(s.yielding, func(a, b yielding) int {
		return cmp.Or(cmp.Compare(a.victims[0].cost, b.victims[0].cost), cmp.Compare(a.node, b.node))
	})
	for _, node := range slices.Sorted(maps.Keys(asked)) {
		s.leaving = append(s.leaving, leaving{node, asked[node]})
	}
}

// awaits reports whether q fits on some node as soon as those have gone there
// that were asked to: nobody else has to be asked, however long their grace.
func (s *pass) awaits(e *compute.Execution, q *capacity.Shape) bool {
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

// lost returns what an attempt's work so far is worth.
func lost(w *compute.Work, now compute.Instant) uint64 {
	hi, lo := bits.Mul64(uint64(w.Execution.FairPrice()), uint64(w.Attempt.Ran(now).Milliseconds()))
	if hi > 0 {
		return maxLost
	}
	return min(lo, maxLost)
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
func (s *pass) preempt(e *compute.Execution, q *capacity.Shape) bool {
	left := MaxPreemptions - len(s.plan.Preemptions)
	if left == 0 || s.futile[*q] {
		return false
	}
	s.readVictims(e.Priority)
	h := hunt{pass: s, q: q, priority: e.Priority, left: left, best: eviction{node: -1}}
	for i := range s.yielding {
		y := &s.yielding[i]
		if h.best.node >= 0 && y.victims[0].cost > h.best.cost {
			break
		}
		h.on(y)
	}
	if h.best.node < 0 {
		s.futile[*q] = true // Room and victims only get fewer in a pass.
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
