package scheduler

import (
	"cmp"
	"slices"

	"berth/compute/capacity"
)

// eviction is a set of attempts on one node and the cost of preempting them.
type eviction struct {
	node    int // -1 for none.
	victims []*victim
	cost    uint64
}

// victimSearch finds the cheapest attempts to preempt so that a shape fits on
// their node. It is branch and bound over the sets of attempts of each node.
type victimSearch struct {
	pass     *pass
	q        *capacity.Shape
	priority int
	left     int // Preemptions that the plan may still contain.
	best     eviction

	// State of the current node:
	node    int
	some    []*victim    // The cheapest first.
	sums    []uint64     // Sums of their costs: 0, the first, the first two, and so on.
	most    capacity.Gap // The most that one of them frees.
	missing capacity.Gap // The least that must be freed.
	then    *slot        // The node without those chosen.
	chosen  []*victim
	tries   int
}

// on searches one more node for cheaper attempts than the best.
func (h *victimSearch) on(y *victimNode) {
	s := h.pass
	slot := &s.packer.slots[y.node]
	if why := slot.refusal(h.q); why != gpusBusy && why != resourcesBusy {
		return
	}
	h.read(y)
	h.then = s.copyOf(y.node)
	for _, v := range h.some {
		h.then.Put(&v.back.shape, v.back.devices)
	}
	if len(h.some) == 0 || !h.then.Fits(h.q) {
		return
	}
	h.spareVictims()
	h.then = s.copyOf(y.node)
	h.missing = capacity.Gap{}
	if devices := []int(nil); h.q.GPUs == 0 || slot.Uniform != capacity.Mixed {
		if h.q.GPUs > 0 {
			s.devices = slot.Nearest(h.q, s.devices[:0])
			devices = s.devices
		}
		h.missing = slot.Gap(h.q, devices)
	}
	h.tries = min(maxTries, maxPassTries-s.tries)
	s.tries += h.tries
	h.search(0, 0)
	s.tries -= h.tries
}

// read reads the attempts on a node that may be preempted.
func (h *victimSearch) read(y *victimNode) {
	h.node, h.some, h.most = y.node, h.some[:0], capacity.Gap{}
	h.sums, h.chosen = append(h.sums[:0], 0), h.chosen[:0]
	for i := range y.victims {
		v := &y.victims[i]
		if v.work.Execution.Priority >= h.priority || h.pass.evicted[v.work.Execution.ID] {
			continue
		}
		h.some = append(h.some, v)
		h.sums = append(h.sums, h.sums[len(h.sums)-1]+v.cost)
		g := v.gives()
		h.most = capacity.Gap{
			Milli: max(h.most.Milli, g.Milli), VCPU: max(h.most.VCPU, g.VCPU), Memory: max(h.most.Memory, g.Memory),
		}
	}
}

// gives returns the capacity that the preemption of v frees.
func (v *victim) gives() capacity.Gap {
	r := &v.back
	return capacity.Gap{
		Milli: int64(r.shape.Milli) * int64(len(r.devices)), VCPU: r.shape.VCPU, Memory: r.shape.Memory,
	}
}

// spareVictims greedily spares the costliest victims while the request still
// fits, and makes the rest the best set if it is. At the start all victims have
// left.
func (h *victimSearch) spareVictims() {
	cost := h.sums[len(h.sums)-1]
	for _, v := range slices.Backward(h.some) {
		h.then.Take(&v.back.shape, v.back.devices)
		if h.then.Fits(h.q) {
			cost -= v.cost
			continue
		}
		h.then.Put(&v.back.shape, v.back.devices)
		h.chosen = append(h.chosen, v)
	}
	if len(h.chosen) <= h.left && h.better(cost, len(h.chosen)) {
		h.take(cost)
	}
	h.chosen = h.chosen[:0]
}

// search extends the chosen set with every later subset that may be better than
// the best.
func (h *victimSearch) search(from int, cost uint64) {
	if h.tries == 0 {
		return
	}
	h.tries--
	if h.then.Fits(h.q) {
		h.take(cost)
		return
	}
	for i := from; i < len(h.some); i++ {
		// Later victims cost at least as much, and so do the others that are
		// needed.
		n := h.needed()
		if i+n > len(h.some) || len(h.chosen)+n > h.left ||
			!h.better(cost+h.sums[i+n]-h.sums[i], len(h.chosen)+n) {
			return
		}
		v := h.some[i]
		h.choose(v, 1)
		h.search(i+1, cost+v.cost)
		h.choose(v, -1)
	}
}

// choose takes a victim off the node (sign 1), or puts it back (-1).
func (h *victimSearch) choose(v *victim, sign int) {
	g, by := v.gives(), int64(sign)
	h.missing = capacity.Gap{
		Milli: h.missing.Milli - by*g.Milli, VCPU: h.missing.VCPU - by*g.VCPU, Memory: h.missing.Memory - by*g.Memory,
	}
	if sign > 0 {
		h.then.Put(&v.back.shape, v.back.devices)
		h.chosen = append(h.chosen, v)
		return
	}
	h.then.Take(&v.back.shape, v.back.devices)
	h.chosen = h.chosen[:len(h.chosen)-1]
}

// needed returns a lower bound of how many more victims have to leave, at least
// one.
func (h *victimSearch) needed() int {
	n := int64(1)
	for _, of := range [...][2]int64{
		{h.missing.Milli, h.most.Milli}, {h.missing.VCPU, h.most.VCPU}, {h.missing.Memory, h.most.Memory},
	} {
		if of[0] > 0 && of[1] > 0 {
			n = max(n, (of[0]+of[1]-1)/of[1])
		}
	}
	return int(n)
}

// better reports whether a set on this node with such a cost is better than the
// best: cheaper, or smaller, or on an earlier node.
func (h *victimSearch) better(cost uint64, attempts int) bool {
	b := &h.best
	return b.node < 0 || cmp.Or(cmp.Compare(cost, b.cost), cmp.Compare(attempts, len(b.victims)),
		cmp.Compare(h.node, b.node)) < 0
}

// take makes the chosen set the best.
func (h *victimSearch) take(cost uint64) {
	h.best = eviction{node: h.node, victims: slices.Clone(h.chosen), cost: cost}
}
