package scheduler

import (
	"cmp"
	"slices"
	"time"

	"berth/compute"
	"berth/compute/capacity"
)

const (
	// overdue is how long after its latest end an attempt still counts as about
	// to end: its node's word may be on the way.
	overdue = time.Minute

	// commitMargin is what may pass between a view and the place that was
	// decided on it.
	commitMargin = 5 * time.Second
)

// Limits of the reservations of one pass.
const (
	maxSearched = 64 // Executions beside the heads for which others may make room.
	maxReserved = 32 // Executions of one GPU type that are promised room.

	// reservedPart is which part of a type's GPUs may be promised to more than
	// the first.
	reservedPart = 8
)

// reservation is room on a node that is promised to an execution which waits:
// its share counts as given away there for the rest of the pass.
type reservation struct {
	node    int
	at      compute.Instant // When its room is free at the latest; never when that is not known.
	shape   capacity.Shape
	devices []int
}

// release is what an attempt gives back at its latest end.
type release struct {
	at      compute.Instant
	shape   capacity.Shape // Of which vCPU, memory and share count.
	devices []int
}

// releases are those of one node, the first to end first, as long as its
// record is the same.
type releases struct {
	node *compute.Node
	list []release
}

// releasesOf returns what the attempts of a slot's node give back. What has
// overstayed is left out: nobody knows when it ends.
func (s *pass) releasesOf(node int) []release {
	p := s.packer
	for len(p.releases) <= node {
		p.releases = append(p.releases, releases{})
	}
	r, n := &p.releases[node], p.slots[node].Record
	if r.node != n {
		r.node, r.list = n, r.list[:0]
		for _, w := range s.view.Work(n.ID) {
			r.list = append(r.list, releaseOf(&w, n))
		}
		slices.SortStableFunc(r.list, func(a, b release) int { return cmp.Compare(a.at, b.at) })
	}
	late := 0
	for late < len(r.list) && r.list[late].at.Add(overdue) < s.view.Now() {
		late++
	}
	return r.list[late:]
}

// releaseOf returns what an attempt on n gives back.
func releaseOf(w *compute.Work, n *compute.Node) release {
	r := w.Execution.Request
	out := release{at: w.LatestEnd(), shape: capacity.Shape{VCPU: r.VCPUMilli, Memory: r.MemoryMiB}}
	if shares := w.Attempt.GPUs; len(shares) > 0 {
		out.shape.Milli, out.devices = shares[len(shares)-1].Milli, capacity.DevicesOf(n, shares)
	}
	return out
}

// startOn returns when q fits on a node if everything there runs to its latest
// end and nothing comes after; never when nobody knows. The trial slot then is
// what the node has free at that instant.
func (s *pass) startOn(node int, q *capacity.Shape) compute.Instant {
	then := s.copyOf(node)
	list := s.releasesOf(node)
	if placed := s.placed[node]; len(placed) > 0 {
		list = slices.Concat(list, placed)
		slices.SortStableFunc(list, func(a, b release) int { return cmp.Compare(a.at, b.at) })
	}
	for i := range list {
		r := &list[i]
		if r.at == compute.Never {
			break
		}
		then.VCPU, then.Memory = then.VCPU+r.shape.VCPU, then.Memory+r.shape.Memory
		for _, d := range r.devices {
			then.Devices[d].Free += r.shape.Milli
		}
		if i+1 < len(list) && list[i+1].at == r.at || then.VCPU < q.VCPU || then.Memory < q.Memory {
			continue
		}
		if then.Count(); then.Fits(q) {
			return r.at
		}
	}
	return compute.Never
}

// copyOf returns a copy of a slot to try things on, valid until the next call.
func (s *pass) copyOf(node int) *slot {
	devices := append(s.trial.Devices[:0], s.packer.slots[node].Devices...)
	s.trial = s.packer.slots[node]
	s.trial.Devices = devices
	return &s.trial
}

// soonest returns the reservation with which q, which is blocked, starts first:
// on the node that has room for it at the earliest, the first by id when equal.
func (s *pass) soonest(q *capacity.Shape) reservation {
	a := s.agenda(q)
	for {
		node, at := a.first()
		if at == compute.Never {
			return reservation{node: -1, at: compute.Never}
		}
		now := s.opens(node, q)
		if now == at {
			return reservation{node: node, at: max(at, s.view.Now()), devices: s.trial.FirstFree(q)}
		}
		a.set(node, now) // Something there has overstayed.
	}
}

// block does what can be done for e, which fits nowhere now. The first of each
// GPU type, the first CPU-only one and some more that ask for several GPUs are
// promised a place; so are some that outrank what may be preempted, and for
// each of them others make room if it does not start as soon without.
func (s *pass) block(e *compute.Execution, q *capacity.Shape) {
	head, more := s.entitled(q)
	urgent := s.mayPreempt(e)
	if !head && !more {
		if !urgent || s.searched == maxSearched {
			return
		}
		s.searched++
	}
	best, kept := s.kept(q)
	if !kept || urgent {
		s.lift()
		best = s.soonest(q)
	}
	soon := best.at <= s.vacating(e.StopGrace) || urgent && s.awaits(e, q)
	if urgent && !soon && s.preempt(e, q) {
		s.pledge(q)
		return
	}
	if head || soon || more && best.node >= 0 {
		s.pledge(q)
		s.reserve(q, best)
	}
}

// promised is what a pass has reserved for those who ask for one GPU type.
type promised struct {
	heads int
	milli int64 // Thousandths of GPU.
}

// entitled reports whether q, which is blocked, is the first of its type, and
// whether it is one of those that are promised a place beside the first: they
// ask for several GPUs, which hardly ever become free together, and all that
// is promised stays a small part of what there is.
func (s *pass) entitled(q *capacity.Shape) (head, more bool) {
	p := s.promises[q.GPUType]
	if p.heads == 0 {
		return true, false
	}
	asked := p.milli + int64(q.GPUs*q.Milli)
	return false, q.GPUs > 1 && p.heads < maxReserved && asked*reservedPart <= s.packer.capacityOf(q.Kinds)
}

// pledge counts one more that is promised room.
func (s *pass) pledge(q *capacity.Shape) {
	p := s.promises[q.GPUType]
	s.promises[q.GPUType] = promised{p.heads + 1, p.milli + int64(q.GPUs*q.Milli)}
}

// capacityOf returns the thousandths of GPU of some kinds on nodes that take
// work.
func (b *board) capacityOf(k *capacity.KindSet) (milli int64) {
	for kind, n := range b.gpu {
		if k.Has[kind] {
			milli += n
		}
	}
	return milli
}

// reserve promises q a place where it starts first, or, when nobody knows when
// that is, where least is missing.
func (s *pass) reserve(q *capacity.Shape, best reservation) {
	if best.node < 0 {
		best = s.nearest(q)
	}
	best.shape = *q
	s.packer.give(best.node, q, best.devices)
	s.reserved = append(s.reserved, best)
}

// fill places e in or beside room that is reserved for others, if they find at
// their time what they would have found without it.
func (s *pass) fill(e *compute.Execution, q *capacity.Shape) bool {
	end := e.EndsBy(s.view.Now().Add(commitMargin))
	if tried, ok := s.unfit[*q]; len(s.reserved) == 0 || ok && end >= tried {
		return false // Room only gets less in a pass.
	}
	choosy := s.choosy(e, s.packer.row(*q))
	for i := range s.reserved {
		r := &s.reserved[i]
		tried := slices.ContainsFunc(s.reserved[:i], func(o reservation) bool { return o.node == r.node && o.timed() })
		if !r.timed() || tried || choosy && e.Avoids(s.packer.slots[r.node].Record.ID) {
			continue
		}
		if s.fillOn(r.node, e, q, end) {
			return true
		}
	}
	if !choosy {
		s.unfit[*q] = end
	}
	return false
}

// timed reports whether it is known when r begins.
func (r *reservation) timed() bool { return r.at != compute.Never }

// fillOn places e on a node where it fits now, if whoever has room reserved
// there finds it in time. The whole room of those who begin no sooner than e ends
// serves until then. Of those who begin sooner, their devices stay away, but not
// the vCPU and memory that come back with the devices.
func (s *pass) fillOn(node int, e *compute.Execution, q *capacity.Shape, end compute.Instant) bool {
	then := s.copyOf(node)
	vcpu, memory := then.VCPU-q.VCPU, then.Memory-q.Memory // What all that is reserved there leaves.
	var sooner []*reservation
	untimed := false
	for i := range s.reserved {
		switch r := &s.reserved[i]; {
		case r.node != node:
		case !r.timed():
			untimed = true
		case r.at >= end:
			then.Put(&r.shape, r.devices)
		default:
			then.Put(&r.shape, nil)
			sooner = append(sooner, r)
		}
	}
	if untimed && len(sooner) > 0 || !then.Fits(q) {
		return false
	}
	for _, r := range sooner {
		if back := s.comesWith(r); vcpu+back.VCPU < 0 || memory+back.Memory < 0 {
			return false
		}
	}
	score := s.packer.scoreOf(then, q)
	s.place(e, q, node, then.pick(s.packer.value, q, nil), compute.Choice{Score: score})
	return true
}

// comesWith returns the vCPU and memory of attempts that hold devices of r and
// have ended when it begins, if they run to their latest end.
func (s *pass) comesWith(r *reservation) (back capacity.Shape) {
	for _, list := range [...][]release{s.releasesOf(r.node), s.placed[r.node]} {
		for i := range list {
			held := func(device int) bool { return slices.Contains(r.devices, device) }
			if given := &list[i]; given.at <= r.at && slices.ContainsFunc(given.devices, held) {
				back.VCPU, back.Memory = back.VCPU+given.shape.VCPU, back.Memory+given.shape.Memory
			}
		}
	}
	return back
}
