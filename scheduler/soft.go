package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Limits of what is spared.
const (
	maxForeseen = 256 // Executions of the queue that are looked at for it.
	maxLifts    = 64  // How often a pass lifts it; then it is forgotten.
)

// spared is room that is going to be reserved for an execution which was
// blocked in an earlier view. Whoever comes before it in the order may take
// that room, but takes what is elsewhere first: otherwise a node that has been
// emptying for an hour would be filled by work that would do as well anywhere.
type spared struct {
	execution compute.ExecutionID
	reservation

	imposed bool // It counts as given away now.
}

// foresee spares the room of those who will be promised some, as far as they
// ask for several GPUs. The record of an execution says that it was blocked,
// so a plan still depends on the view alone.
func (s *pass) foresee() {
	queue := newTurns(s.view)
	for range maxForeseen {
		e := queue.next()
		if e == nil {
			break
		}
		if e.Request.GPUs < 2 || e.Reason != compute.ReasonGPUsBusy && e.Reason != compute.ReasonResourcesBusy {
			continue
		}
		q := s.packer.types.Shape(&e.Request)
		if head, more := s.entitled(&q); !head && !more {
			continue
		}
		if r, ok := s.foreseen(&q); ok {
			s.pledge(&q)
			r.shape = q
			s.spared = append(s.spared, spared{execution: e.ID, reservation: r})
			s.set(&s.spared[len(s.spared)-1], true)
		}
	}
	clear(s.promises)
}

// foreseen returns the room that q has now, or will have first.
func (s *pass) foreseen(q *capacity.Shape) (reservation, bool) {
	switch node, score := s.packer.row(*q).best(); {
	case score <= worstFit:
		devices := s.packer.slots[node].pick(s.packer.value, q, nil)
		return reservation{node: node, at: s.view.Now(), devices: devices}, true
	case score == gpusBusy || score == resourcesBusy:
		r := s.soonest(q)
		return r, r.node >= 0
	}
	return reservation{}, false
}

// set makes room that is spared count as given away, or not.
func (s *pass) set(r *spared, imposed bool) {
	switch {
	case r.imposed == imposed:
		return
	case imposed:
		s.packer.give(r.node, &r.shape, r.devices)
	default:
		s.packer.giveBack(r.node, &r.shape, r.devices)
	}
	r.imposed = imposed
}

// redeem ends the sparing for e, whose turn it is.
func (s *pass) redeem(e *compute.Execution) {
	s.own = nil
	for i := range s.spared {
		if own := s.spared[i]; own.execution == e.ID {
			s.set(&own, false)
			s.own, s.spared = &own, slices.Delete(s.spared, i, i+1)
			return
		}
	}
}

// kept returns what was foreseen for q, whose turn it is and which is blocked,
// if that still holds. As long as those before it came as foreseen nothing is
// sooner, since the room of others was only taken away later. What came out of
// turn, a fairer share within the pass, may have taken other room than was
// foreseen: then what is kept is a room that q gets in time, not the soonest.
func (s *pass) kept(q *capacity.Shape) (reservation, bool) {
	if s.own == nil || s.opens(s.own.node, q) != s.own.at {
		return reservation{}, false
	}
	return reservation{node: s.own.node, at: max(s.own.at, s.view.Now()), devices: s.trial.FirstFree(q)}, true
}

// yields reports whether q, which fits nowhere, would fit in room that is
// spared.
func (s *pass) yields(q *capacity.Shape) bool {
	if len(s.spared) == 0 || s.useless[*q] {
		return false // Room only gets less in a pass.
	}
	for i := range s.spared {
		then := s.copyOf(s.spared[i].node)
		for j := range s.spared {
			if r := &s.spared[j]; r.node == s.spared[i].node {
				then.Put(&r.shape, r.devices)
			}
		}
		if then.Fits(q) {
			return true
		}
	}
	s.useless[*q] = true
	return false
}

// lift makes what is spared free for the execution whose turn it is.
func (s *pass) lift() {
	if s.lifted || len(s.spared) == 0 {
		return
	}
	s.lifted = true
	s.lifts++
	for i := range s.spared {
		s.set(&s.spared[i], false)
	}
}

// impose spares again what lift made free.
func (s *pass) impose() {
	if !s.lifted {
		return
	}
	s.lifted = false
	if s.lifts >= maxLifts {
		s.spared = nil
		return
	}
	for i := range s.spared {
		s.set(&s.spared[i], true)
	}
}
