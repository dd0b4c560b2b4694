package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Limits of soft reservations.
const (
	maxSoftSearched = 256 // Executions of the queue that are checked.
	maxLifts        = 64  // Times that a pass lifts them before it drops them.
)

// softReservation is capacity that will be reserved for an execution that was
// blocked in an earlier view, as its record says. Executions before it in the order may take that
// capacity, but take other capacity first. Otherwise work that fits anywhere
// would fill a node that has been emptying for an hour.
type softReservation struct {
	execution compute.ExecutionID
	reservation

	imposed bool // It counts as given away.
}

// reserveSoftly makes soft reservations for blocked executions with several
// GPUs that will get a reservation. The execution's record says that it was
// blocked, or that one like it is which is older, so a plan still depends on the
// view alone. Next yields the queue.
func (s *pass) reserveSoftly(next func() *compute.Execution) {
	for range maxSoftSearched {
		e := next()
		if e == nil {
			break
		}
		if e.Request.GPUs < 2 || e.Reason != compute.ReasonGPUsBusy && e.Reason != compute.ReasonResourcesBusy {
			continue
		}
		request, refused := s.quotas.open(e)
		if refused != compute.ReasonNone {
			continue
		}
		q := s.packer.types.Shape(&request)
		if head, more := s.mayReserve(&q); !head && !more {
			continue
		}
		if r, ok := s.softRoom(&q); ok {
			s.countReserved(&q)
			r.shape = q
			s.soft = append(s.soft, softReservation{execution: e.ID, reservation: r})
			s.set(&s.soft[len(s.soft)-1], true)
		}
	}
	clear(s.promises)
}

// softRoom returns the capacity that q has at present, or will have first.
func (s *pass) softRoom(q *capacity.Shape) (reservation, bool) {
	switch node, score := s.packer.scores(*q).best(); {
	case score <= worstFit:
		devices := s.packer.slots[node].pick(s.packer.value, q, nil)
		return reservation{node: node, at: s.view.Now(), devices: devices}, true
	case score == gpusBusy || score == resourcesBusy:
		r := s.soonest(q)
		return r, r.node >= 0
	}
	return reservation{}, false
}

// set makes a soft reservation count as given away, or not.
func (s *pass) set(r *softReservation, imposed bool) {
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

// claimOwn ends the soft reservation of e before its decision.
func (s *pass) claimOwn(e *compute.Execution) {
	s.own = nil
	for i := range s.soft {
		if own := s.soft[i]; own.execution == e.ID {
			s.set(&own, false)
			s.own, s.soft = &own, slices.Delete(s.soft, i, i+1)
			return
		}
	}
}

// stillValid returns the soft reservation of q, which is blocked, if it still
// starts at the same instant. While executions are decided in the foreseen
// order nothing starts sooner, because capacity was only taken away since. An
// execution out of that order, of an organization that became first within the
// pass, may have taken other capacity. Then the result is a node that q gets in
// time, not necessarily the soonest.
func (s *pass) stillValid(q *capacity.Shape) (reservation, bool) {
	if s.own == nil || s.opens(s.own.node, q) != s.own.at {
		return reservation{}, false
	}
	return reservation{node: s.own.node, at: max(s.own.at, s.view.Now()), devices: s.trial.FirstFree(q)}, true
}

// yields reports whether q, which fits nowhere, would fit if all soft
// reservations were lifted.
func (s *pass) yields(q *capacity.Shape) bool {
	if len(s.soft) == 0 || s.noSoftFit[*q] {
		return false // Free capacity only shrinks during a pass.
	}
	for i := range s.soft {
		then := s.copyOf(s.soft[i].node)
		for j := range s.soft {
			if r := &s.soft[j]; r.node == s.soft[i].node {
				then.Put(&r.shape, r.devices)
			}
		}
		if then.Fits(q) {
			return true
		}
	}
	s.noSoftFit[*q] = true
	return false
}

// liftSoft makes soft reservations count as free for the current decision.
func (s *pass) liftSoft() {
	if s.lifted || len(s.soft) == 0 {
		return
	}
	s.lifted = true
	s.lifts++
	for i := range s.soft {
		s.set(&s.soft[i], false)
	}
}

// restoreSoft undoes liftSoft.
func (s *pass) restoreSoft() {
	if !s.lifted {
		return
	}
	s.lifted = false
	if s.lifts >= maxLifts {
		s.soft = nil
		return
	}
	for i := range s.soft {
		s.set(&s.soft[i], true)
	}
}
