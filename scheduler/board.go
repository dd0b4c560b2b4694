package scheduler

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Limits of the caches of a board. Beyond them it clears a cache and starts
// over.
const (
	maxShapes  = 1024    // Score trees.
	maxEntries = 1 << 25 // Nodes in all score trees, about 9 bytes each.
	maxSets    = 4096    // Sets of GPU types, misspelt ones included.
)

// board is the nodes with their free capacity, the value of that capacity, and
// cached scores. The caches never change an answer.
type board struct {
	types *capacity.Kinds
	slots []slot
	at    map[compute.NodeID]int32 // Slots by node.
	mix   *compute.Mix
	value *value

	hardware    map[string]int
	families    map[string]*familyCount
	gpu         []int64 // Thousandths of a GPU by kind, on nodes that take work.
	vcpu        int64   // On nodes with GPUs that take work, as is memory.
	memory      int64
	otherVCPU   int64 // On the other nodes that take work.
	otherMemory int64
	valued      string // Identifies the supply and the mix that the value was computed from.
	revalue     bool   // The supply or the mix may have changed.

	openings []opening // By group.
	open     []int64   // Openings by node and group.
	holding  []uint64  // A bit per node: it has openings.
	epoch    uint64    // Rises when a price changes.

	trees      map[capacity.Shape]*scoreTree
	entries    int
	log        []int32 // Nodes in the order in which they changed.
	dropped    uint64  // How much of the log was dropped at its front.
	generation uint64  // Rises when all scores are void.

	seen   []uint64 // Scratch by node: the sync that last scored it.
	equal  []memo   // Scratch by hardware: the score of an idle node.
	syncs  uint64
	free   int64 // Thousandths of a GPU on nodes that take work.
	usable int64 // The part of free that can be given as whole GPUs.
}

// memo is a score shared by all idle nodes of one hardware.
type memo struct {
	sync  uint64
	score int64
}

func newBoard() board {
	return board{
		types: capacity.NewKinds(), at: map[compute.NodeID]int32{}, hardware: map[string]int{},
		families: map[string]*familyCount{},
		trees:    map[capacity.Shape]*scoreTree{}, revalue: true, generation: 1,
	}
}

// load sets node i to its record.
func (b *board) load(i int, n *compute.Node) {
	s := &b.slots[i]
	known := s.Record
	same := known != nil && sameHardware(known, n)
	if known != nil {
		b.free, b.usable = b.free-s.freeIf(), b.usable-s.usable
		if !same {
			b.count(s, -1)
		}
	}
	if known == nil || known.ID != n.ID {
		b.at[n.ID] = int32(i)
	}
	s.load(n, b.types)
	if !same {
		s.hardware = b.hardwareOf(s)
		b.count(s, 1)
		b.revalue = true
	}
	b.addFree(s)
	b.touch(i)
}

// unload removes node i from the sums.
func (b *board) unload(i int) {
	s := &b.slots[i]
	b.free, b.usable = b.free-s.freeIf(), b.usable-s.usable
	b.count(s, -1)
	b.revalue = true
}

// setMix sets the demand that free capacity is valued by.
func (b *board) setMix(m *compute.Mix) {
	if m != b.mix {
		b.mix, b.revalue = m, true
	}
}

// refresh recomputes the value of free capacity if the mix or the supply has
// changed.
func (b *board) refresh() {
	if !b.revalue {
		return
	}
	b.revalue = false
	for len(b.gpu) < len(b.types.Names) {
		b.gpu = append(b.gpu, 0)
	}
	c := &supply{
		vcpu: coarse(b.vcpu), memory: coarse(b.memory),
		otherVCPU: coarse(b.otherVCPU), otherMemory: coarse(b.otherMemory),
	}
	key := fmt.Sprint(c.vcpu, c.memory, c.otherVCPU, c.otherMemory)
	for kind, n := range b.gpu {
		c.gpu = append(c.gpu, coarse(n))
		key += fmt.Sprint(" ", kind, " ", coarse(n))
	}
	for _, family := range slices.Sorted(maps.Keys(b.families)) {
		c.hardware = append(c.hardware, b.families[family].family)
		key += family
	}
	if b.mix != nil {
		key += fmt.Sprint("mix ", b.mix.Version)
	}
	if key == b.valued {
		return
	}
	b.valued = key
	for i := range c.hardware {
		for len(c.hardware[i].counts) < len(b.types.Names) {
			c.hardware[i].counts = append(c.hardware[i].counts, 0)
		}
	}
	b.value = newDemand(b.mix, b.types, c).value()
	b.revalueSlots()
}

// revalueSlots recomputes everything that depends on the value, for every node.
func (b *board) revalueSlots() {
	groups := len(b.value.groups)
	b.openings = make([]opening, groups)
	b.open = make([]int64, groups*len(b.slots))
	b.holding = make([]uint64, (len(b.slots)+63)/64)
	b.forget()
	for i := range b.slots {
		b.revalueSlot(i)
	}
	for j := range b.openings {
		b.openings[j].reprice(&b.value.groups[j])
	}
	b.epoch++
}

// forget makes every score tree score all nodes again.
func (b *board) forget() {
	b.dropped += uint64(len(b.log))
	b.log = b.log[:0]
	b.generation++
}

// touch records that node i has changed.
func (b *board) touch(i int) {
	b.log = append(b.log, int32(i))
	if limit := 4*len(b.slots) + maxShapes; len(b.log) > limit {
		half := len(b.log) / 2
		b.dropped += uint64(half)
		b.log = b.log[:copy(b.log, b.log[half:])]
	}
	if b.valued == "" {
		return // All slots are valued once a value exists.
	}
	b.revalueSlot(i)
}

// revalueSlot recomputes the value of the free capacity of node i and its
// openings.
func (b *board) revalueSlot(i int) {
	s := &b.slots[i]
	s.rest = b.value.rest(s.GPUFree, s.VCPU, s.Memory)
	groups := b.value.groups
	if len(groups) == 0 {
		return
	}
	open := b.open[i*len(groups):][:len(groups)]
	some, priced := false, false
	for j := range groups {
		n := int64(0)
		if s.Open {
			n = groups[j].on(s, s.Whole, s.VCPU, s.Memory)
		}
		some = some || n != 0
		if n == open[j] {
			continue
		}
		o := &b.openings[j]
		o.count += n - open[j]
		open[j] = n
		priced = o.reprice(&groups[j]) || priced
	}
	bit := uint64(1) << (i % 64)
	b.holding[i/64] &^= bit
	if some {
		b.holding[i/64] |= bit
	}
	if priced {
		b.epoch++
	}
}

// holds reports whether node i has openings.
func (b *board) holds(i int) bool {
	return len(b.openings) > 0 && b.holding[i/64]&(1<<(i%64)) != 0
}

// taken returns the cost of the openings that q takes from s, whose openings
// are open.
func (b *board) taken(s *slot, open []int64, q *capacity.Shape, c change) int64 {
	cost := int64(0)
	for j := range b.openings {
		before, price := open[j], b.openings[j].price
		if before == 0 || price == 0 {
			continue
		}
		after := b.value.groups[j].on(s, s.Whole-c.whole, s.VCPU-q.VCPU, s.Memory-q.Memory)
		cost += price * (before - after) >> places
	}
	return cost
}

// scores returns the score tree of a shape, up to date.
func (b *board) scores(q capacity.Shape) *scoreTree {
	b.refresh()
	r := b.trees[q]
	if r == nil {
		if len(b.trees) >= maxShapes || b.entries+len(b.slots) > maxEntries {
			clear(b.trees)
			b.entries = 0
		}
		r = &scoreTree{shape: q}
		b.trees[q] = r
		b.entries += len(b.slots)
	}
	b.syncs++
	for len(b.seen) < len(b.slots) {
		b.seen = append(b.seen, 0)
	}
	end := b.dropped + uint64(len(b.log))
	if r.generation != b.generation || r.cursor < b.dropped || end-r.cursor > uint64(len(b.slots)/2) {
		b.scoreAll(r)
	} else {
		b.scoreChanged(r)
	}
	r.generation, r.epoch, r.cursor = b.generation, b.epoch, end
	return r
}

// scoreAll scores every node for r.
func (b *board) scoreAll(r *scoreTree) {
	if len(r.levels) == 0 || len(r.levels[0]) != len(b.slots) {
		r.size(len(b.slots))
	}
	for i := range b.slots {
		r.levels[0][i] = entry(b.scoreOnce(i, &r.shape), i)
	}
	r.summarize()
}

// scoreChanged rescores the nodes that have changed since r was last up to
// date, and those with openings if the price of openings has changed.
func (b *board) scoreChanged(r *scoreTree) {
	for _, node := range b.log[r.cursor-b.dropped:] {
		if i := int(node); b.seen[i] != b.syncs {
			b.seen[i] = b.syncs
			r.set(i, b.scoreOnce(i, &r.shape))
		}
	}
	if r.epoch == b.epoch {
		return
	}
	for word, set := range b.holding {
		for ; set != 0; set &= set - 1 {
			if i := word*64 + bits.TrailingZeros64(set); b.seen[i] != b.syncs {
				r.set(i, b.scoreOnce(i, &r.shape))
			}
		}
	}
}

// scoreOnce is score, computed once for all idle nodes of the same hardware.
func (b *board) scoreOnce(i int, q *capacity.Shape) int64 {
	s := &b.slots[i]
	if !s.Idle {
		return b.score(i, q)
	}
	m := &b.equal[s.hardware]
	if m.sync != b.syncs {
		m.sync, m.score = b.syncs, b.score(i, q)
	}
	return m.score
}

// give takes one q from a node.
func (b *board) give(node int, q *capacity.Shape, devices []int) {
	s := &b.slots[node]
	b.free, b.usable = b.free-s.freeIf(), b.usable-s.usable
	s.Take(q, devices)
	b.addFree(s)
	b.touch(node)
}

// giveBack undoes give.
func (b *board) giveBack(node int, q *capacity.Shape, devices []int) {
	s := &b.slots[node]
	b.free, b.usable = b.free-s.freeIf(), b.usable-s.usable
	s.Put(q, devices)
	b.addFree(s)
	b.touch(node)
}
