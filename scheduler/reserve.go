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
	// to end. The report of its end may be on the way.
	overdue = time.Minute

	// commitMargin is the time allowed between a view and the commit of a
	// placement decided on it.
	commitMargin = 5 * time.Second
)

// Limits of the reservations of one pass.
const (
	maxSearched = 64 // Executions beside the heads that search for victims.
	maxReserved = 32 // Reservations for one GPU type.

	// reservedPart limits reservations beside the head to one in so many of a
	// type's GPUs.
	reservedPart = 8
)

// reservation is capacity on a node that is kept for a blocked execution. It
// counts as given away for the rest of the pass.
type reservation struct {
	node    int
	at      compute.Instant // When the capacity is free at the latest; Never when unknown.
	shape   capacity.Shape
	devices []int
}

// release is the capacity that an attempt frees at its latest end.
type release struct {
	at      compute.Instant
	shape   capacity.Shape // Only vCPU, memory and share are set.
	devices []int
}

// releases are those of one node, the first to end first. They are valid while
// the node's record is the same.
type releases struct {
	node *compute.Node
	list []release
}

// releasesOf returns the releases of the attempts on a node. Overdue attempts are
// left out, because their end is unknown.
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

// releaseOf returns the release of an attempt on n.
func releaseOf(w *compute.Work, n *compute.Node) release {
	r := w.Execution.Request
	out := release{at: w.LatestEnd(), shape: capacity.Shape{VCPU: r.VCPUMilli, Memory: r.MemoryMiB}}
	if shares := w.Attempt.GPUs; len(shares) > 0 {
		out.shape.Milli, out.devices = shares[len(shares)-1].Milli, capacity.DevicesOf(n, shares)
	}
	return out
}

// startOn returns when q fits on a node if every attempt there runs to its
// latest end and nothing else is placed. It returns Never when that is unknown.
// Afterwards the trial slot holds the free capacity at that instant.
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
// on the node where it fits at the earliest, the first by id when equal.
func (s *pass) soonest(q *capacity.Shape) reservation {
	a := s.releaseHeap(q)
	for {
		node, at := a.first()
		if at == compute.Never {
			return reservation{node: -1, at: compute.Never}
		}
		now := s.opens(node, q)
		if now == at {
			return reservation{node: node, at: max(at, s.view.Now()), devices: s.trial.FirstFree(q)}
		}
		a.set(node, now) // An attempt there is overdue.
	}
}

// block handles e, which fits nowhere at present. The first execution of each
// GPU type, the first CPU-only one and some more with several GPUs get
// reservations. Executions that outrank preemptible attempts may preempt them
// if they would not start as soon otherwise.
func (s *pass) block(e *compute.Execution, q *capacity.Shape) {
	head, more := s.mayReserve(q)
	urgent := s.mayPreempt(e)
	if !head && !more {
		if !urgent || s.searched == maxSearched {
			return
		}
		s.searched++
	}
	best, kept := s.stillValid(q)
	if !kept || urgent {
		s.liftSoft()
		best = s.soonest(q)
	}
	soon := best.at <= s.vacating(e.StopGrace) || urgent && s.leavesInTime(e, q)
	if urgent && !soon && s.preempt(e, q) {
		s.countReserved(q)
		return
	}
	if head || soon || more && best.node >= 0 {
		s.countReserved(q)
		s.reserve(q, best)
	}
}

// promised counts the reservations of a pass for one GPU type.
type promised struct {
	heads int
	milli int64 // Thousandths of GPU.
}

// mayReserve reports whether q, which is blocked, is the head of its type, and
// whether it is one of those that get a reservation beside the head. Those ask
// for several GPUs, which rarely become free together, and all reservations
// stay a small part of the capacity.
func (s *pass) mayReserve(q *capacity.Shape) (head, more bool) {
	p := s.promises[q.GPUType]
	if p.heads == 0 {
		return true, false
	}
	asked := p.milli + int64(q.GPUs*q.Milli)
	return false, q.GPUs > 1 && p.heads < maxReserved && asked*reservedPart <= s.packer.capacityOf(q.Kinds)
}

// countReserved counts one more reservation for the type of q.
func (s *pass) countReserved(q *capacity.Shape) {
	p := s.promises[q.GPUType]
	s.promises[q.GPUType] = promised{p.heads + 1, p.milli + int64(q.GPUs*q.Milli)}
}

// capacityOf returns the thousandths of GPU of a set of kinds on nodes that
// take work.
func (b *board) capacityOf(k *capacity.KindSet) (milli int64) {
	for kind, n := range b.gpu {
		if k.Has[kind] {
			milli += n
		}
	}
	return milli
}

// reserve reserves capacity for q where it starts first. When no start is
// known, it reserves where the least is missing.
func (s *pass) reserve(q *capacity.Shape, best reservation) {
	if best.node < 0 {
		best = s.nearest(q)
	}
	best.shape = *q
	s.packer.give(best.node, q, best.devices)
	s.reserved = append(s.reserved, best)
}

// fill backfills e in or beside reserved capacity, if no reserved execution
// starts later because of it.
func (s *pass) fill(e *compute.Execution, q *capacity.Shape) bool {
	end := e.EndsBy(s.view.Now().Add(commitMargin))
	if tried, ok := s.noBackfill[*q]; len(s.reserved) == 0 || ok && end >= tried {
		return false // Free capacity only shrinks during a pass.
	}
	avoids := s.avoids(e, s.packer.scores(*q))
	for i := range s.reserved {
		r := &s.reserved[i]
		tried := slices.ContainsFunc(s.reserved[:i], func(o reservation) bool { return o.node == r.node && o.timed() })
		if !r.timed() || tried || avoids && e.Avoids(s.packer.slots[r.node].Record.ID) {
			continue
		}
		if s.fillOn(r.node, e, q, end) {
			return true
		}
	}
	if !avoids {
		s.noBackfill[*q] = end
	}
	return false
}

// timed reports whether the start of r is known.
func (r *reservation) timed() bool { return r.at != compute.Never }

// fillOn backfills e on a node if every execution with a reservation there
// still starts in time. Reservations that begin no sooner than e ends may be
// used entirely until then. Reservations that begin sooner keep their devices,
// but not the vCPU and memory that are released with the devices.
func (s *pass) fillOn(node int, e *compute.Execution, q *capacity.Shape, end compute.Instant) bool {
	then := s.copyOf(node)
	vcpu, memory := then.VCPU-q.VCPU, then.Memory-q.Memory // Free beside the reservations there and e.
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
		if back := s.releasedWith(r); vcpu+back.VCPU < 0 || memory+back.Memory < 0 {
			return false
		}
	}
	score := s.packer.scoreOf(then, q)
	s.place(e, q, node, then.pick(s.packer.value, q, nil), compute.Choice{Score: score})
	return true
}

// releasedWith returns the vCPU and memory of attempts that hold devices of r
// and end before it begins, if they run to their latest end.
func (s *pass) releasedWith(r *reservation) (back capacity.Shape) {
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

// nearest returns a reservation for q on the node where the least is missing.
// It is for executions that wait for overdue attempts, whose end is unknown.
func (s *pass) nearest(q *capacity.Shape) reservation {
	best, least := -1, capacity.Gap{}
	for i := range s.packer.slots {
		slot := &s.packer.slots[i]
		if why := slot.refusal(q); why != gpusBusy && why != resourcesBusy {
			continue
		}
		s.devices = slot.Nearest(q, s.devices[:0])
		if g := slot.Gap(q, s.devices); best < 0 || g.Compare(least) < 0 {
			best, least = i, g
		}
	}
	return reservation{node: best, at: compute.Never, devices: s.packer.slots[best].Nearest(q, nil)}
}
