package capacity

import "cmp"

// Gap is the capacity that must become free on a node before a shape fits.
type Gap struct {
	Milli  int64 // Over the devices that are nearest to free.
	VCPU   int64
	Memory int64
}

// Compare orders gaps: GPUs first, then vCPU, then memory.
func (g Gap) Compare(h Gap) int {
	return cmp.Or(cmp.Compare(g.Milli, h.Milli), cmp.Compare(g.VCPU, h.VCPU), cmp.Compare(g.Memory, h.Memory))
}

// Gap returns the capacity that is missing on s for q to fit on the given devices.
func (s *Node) Gap(q *Shape, devices []int) Gap {
	g := Gap{VCPU: max(q.VCPU-s.VCPU, 0), Memory: max(q.Memory-s.Memory, 0)}
	for _, i := range devices {
		g.Milli += int64(max(q.Milli-s.Devices[i].Free, 0))
	}
	return g
}
