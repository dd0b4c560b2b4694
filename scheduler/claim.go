package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
)

// nearest returns a reservation for q where it is nearest to fitting. It is
// for what waits for attempts of which nobody knows when they end.
func (s *pass) nearest(q *shape) reservation {
	best, least := -1, gap{}
	for i := range s.packer.slots {
		slot := &s.packer.slots[i]
		if why := slot.refusal(q); why != gpusBusy && why != resourcesBusy {
			continue
		}
		s.devices = slot.nearest(q, s.devices[:0])
		if g := slot.gap(q, s.devices); best < 0 || g.compare(least) < 0 {
			best, least = i, g
		}
	}
	return reservation{node: best, at: compute.Never, devices: s.packer.slots[best].nearest(q, nil)}
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
