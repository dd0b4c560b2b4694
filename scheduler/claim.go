package scheduler

import (
	"cmp"
	"slices"
)

// claim promises the node where q, which is blocked, is nearest to fitting:
// for the rest of the pass its share counts as given away there, free or not.
// Later executions may pass the blocked one with what is left beside it, so
// they never delay it. Only the first blocked execution of each GPU type, and
// the first CPU-only one, has a claim; DESIGN.md has the proof that it starts.
func (s *pass) claim(q *shape) {
	if s.claimed[q.gpuType] {
		return
	}
	s.claimed[q.gpuType] = true
	best, least := -1, gap{}
	for i := range s.packer.slots {
		slot := &s.packer.slots[i]
		if score := slot.refusal(q); score != gpusBusy && score != resourcesBusy {
			continue
		}
		s.devices = slot.nearest(q, s.devices[:0])
		if g := slot.gap(q, s.devices); best < 0 || g.compare(least) < 0 {
			best, least = i, g
		}
	}
	s.devices = s.packer.slots[best].nearest(q, s.devices[:0])
	s.packer.give(best, q, s.devices)
}

// gap is what must become free on a node before a shape fits.
type gap struct {
	milli  int64 // Over the devices that are nearest to free.
	vcpu   int64
	memory int64
}

// compare orders gaps: GPUs first, then vCPU, then memory.
func (g gap) compare(h gap) int {
	return cmp.Or(cmp.Compare(g.milli, h.milli), cmp.Compare(g.vcpu, h.vcpu), cmp.Compare(g.memory, h.memory))
}

// gap returns what is missing on s before q fits on the given devices.
func (s *slot) gap(q *shape, devices []int) gap {
	g := gap{vcpu: max(q.vcpu-s.vcpu, 0), memory: max(q.memory-s.memory, 0)}
	for _, i := range devices {
		g.milli += int64(max(q.milli-s.devices[i].free, 0))
	}
	return g
}

// nearest appends to into the healthy devices for q with the most free, the
// lowest index first when equal. The node must have enough of one kind.
func (s *slot) nearest(q *shape, into []int) []int {
	kind, _ := s.kindFor(q, (*device).usable)
	for i := range s.devices {
		if d := &s.devices[i]; d.kind == kind && d.usable() {
			into = append(into, i)
		}
	}
	slices.SortStableFunc(into, func(a, b int) int {
		return cmp.Compare(s.devices[b].free, s.devices[a].free)
	})
	return into[:q.gpus]
}
