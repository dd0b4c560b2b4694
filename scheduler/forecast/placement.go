package forecast

import (
	"cmp"
	"math"
	"slices"

	"berth/compute/capacity"
)

// gapUnit makes a missing GPU weigh more than any missing vCPU or memory.
const gapUnit = 1 << 32

// bestFit returns the devices for one q, which fits: those with the least free
// that is enough.
func bestFit(n *capacity.Node, q *capacity.Shape) []int {
	if q.GPUs == 0 {
		return nil
	}
	enough := func(d *capacity.Device) bool { return d.Free >= q.Milli && d.Usable() && q.Kinds.Enough(d.VRAM) }
	kind, _ := n.KindFor(q, enough)
	var all []int
	for i := range n.Devices {
		if d := &n.Devices[i]; d.Kind == kind && enough(d) {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(n.Devices[a].Free, n.Devices[b].Free) })
	return all[:q.GPUs]
}

// without returns n as it is for others once q has a claim on it: the capacity
// that q needs is taken, even where it is not free yet.
func without(n *capacity.Node, q *capacity.Shape) *capacity.Node {
	c := new(capacity.Node)
	c.CopyFrom(n)
	c.Take(q, n.Nearest(q, nil))
	return c
}

// missing returns how far q is from fitting on n. It is math.MaxInt64 when the
// empty node could not host q.
func missing(n *capacity.Node, q *capacity.Shape) int64 {
	near := n.Nearest(q, nil)
	if len(near) < q.GPUs || n.Record.VCPUMilli < q.VCPU || n.Record.MemoryMiB < q.Memory || !q.Offered(n.Record) {
		return math.MaxInt64
	}
	gap := n.Gap(q, near)
	return gapUnit*gap.Milli + gap.VCPU + gap.Memory
}
