package scheduler

import (
	"cmp"
	"slices"

	"berth/compute/capacity"
)

// eviction is a set of attempts on one node, and what it costs.
type eviction struct {
	node    int // -1 for none.
	victims []*victim
	cost    uint64
}

// hunt is the search for the cheapest attempts without which a shape would fit
// on their node: branch and bound over the sets of each node.
type hunt struct {
	pass     *pass
	q        *capacity.Shape
	priority int
	left     int // Attempts that the plan still may ask.
	best     eviction

	// Of the node that is looked at:
	node    int
	some    []*victim    // The cheapest first.
	sums    []uint64     // Of their costs: of the first, of the first two, and so on, behind 0.
	most    capacity.Gap // The most that one of them gives back.
	missing capacity.Gap // The least that has to be given back.
	then    *slot        // The node without those chosen.
	chosen  []*victim
	tries   int
}

// on looks for cheaper attempts than the best on one more node.
func (h *hunt) on(y *yielding) {
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
	h.letOff()
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

// read reads who may be asked on a node.
func (h *hunt) read(y *yielding) {
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

// gives returns what v gives back.
func (v *victim) gives() capacity.Gap {
	r := &v.back
	return capacity.Gap{
		Milli: int64(r.shape.Milli) * int64(len(r.devices)), VCPU: r.shape.VCPU, Memory: r.shape.Memory,
	}
}

// letOff lets off the dearest while the shape still fits without the others,
// and takes those for the best if they are. All of them have left then.
func (h *hunt) letOff() {
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

// search tries what is chosen with every set of those from there on that may
// be better than the best.
func (h *hunt) search(from int, cost uint64) {
	if h.tries == 0 {
		return
	}
	h.tries--
	if h.then.Fits(h.q) {
		h.take(cost)
		return
	}
	for i := from; i < len(h.some); i++ {
		// Each later one costs as much at least, and so does what is needed
		// beside it.
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

// choose lets a victim leave (sign 1), or come back.
func (h *hunt) choose(v *victim, sign int) {
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

// needed returns how many more have to leave at the least, one at least.
func (h *hunt) needed() int {
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

// better reports whether attempts on this node that cost so much are better
// than the best: cheaper, or fewer, or on an earlier node.
func (h *hunt) better(cost uint64, attempts int) bool {
	b := &h.best
	return b.node < 0 || cmp.Or(cmp.Compare(cost, b.cost), cmp.Compare(attempts, len(b.victims)),
		cmp.Compare(h.node, b.node)) < 0
}

// take makes what is chosen the best.
func (h *hunt) take(cost uint64) {
	h.best = eviction{node: h.node, victims: slices.Clone(h.chosen), cost: cost}
}
