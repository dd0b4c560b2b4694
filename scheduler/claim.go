package scheduler

import (
	"berth/compute"
	"berth/compute/capacity"
)

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
