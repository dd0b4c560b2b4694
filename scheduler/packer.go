package scheduler

import (
	"iter"

	"berth/compute"
	"berth/compute/capacity"
	"berth/scheduler/queue"
)

// Packer computes plans and caches scores between them. A plan depends on its
// view alone: a Packer that has seen other views returns the same plan as a new
// one. It must not be used by two goroutines at once.
type Packer struct {
	board
	queue    *queue.Queue
	revision compute.Revision // Revision of the node records in the slots.
	given    []int32          // Nodes on which the last pass placed or reserved something.

	releases     []releases                      // By slot; see pass.releasesOf.
	releaseHeaps map[capacity.Shape]*releaseHeap // By shape, for shapes with reservations.
	fitting      []compute.NodeScore             // Scratch of a trace.
}

// NewPacker returns a Packer with empty caches.
func NewPacker() *Packer {
	b := newBoard()
	return &Packer{board: b, queue: queue.New(b.types)}
}

// sync brings the copy of the queue and the slots up to the view, and takes back the
// capacity that the last pass gave away.
func (p *Packer) sync(v View) {
	if len(p.types.Sets) > maxSets {
		*p = *NewPacker()
	}
	p.queue.Sync(v)
	p.syncNodes(v)
}

// syncNodes brings the slots up to the view's nodes.
func (p *Packer) syncNodes(v View) {
	p.setMix(v.Mix())
	changed, now, complete := v.NodesChanged(p.revision)
	p.revision = now
	if !complete {
		for _, i := range p.given {
			p.slots[i].stale = true
		}
		p.given = p.given[:0]
		p.setNodes(v.Nodes())
		return
	}
	for _, i := range p.given {
		p.reload(v, p.slots[i].Record.ID, true)
	}
	p.given = p.given[:0]
	for _, id := range changed {
		p.reload(v, id, false)
	}
}

// reload brings the slot of a node up to its record, always when it is stale.
func (p *Packer) reload(v View, id compute.NodeID, stale bool) {
	n, known := v.Node(id)
	i, placed := p.at[id]
	if known && placed && (stale || p.slots[i].Record != n) {
		p.load(int(i), n)
	}
}

// setNodes brings the slots up to the records of all nodes. Records are shared
// and immutable, so a slot with the same record that is not stale is left
// alone.
func (b *board) setNodes(nodes iter.Seq[*compute.Node]) {
	count := 0
	for n := range nodes {
		if count == len(b.slots) {
			b.slots = append(b.slots, slot{})
			b.resize()
		}
		if s := &b.slots[count]; s.Record != n || s.stale {
			b.load(count, n)
		}
		count++
	}
	if count < len(b.slots) {
		for i := count; i < len(b.slots); i++ {
			b.unload(i)
		}
		b.slots = b.slots[:count]
		b.resize()
	}
}

// resize voids everything that is cached by node, because their number has
// changed.
func (b *board) resize() {
	b.valued, b.revalue = "", true
	if b.entries = len(b.trees) * len(b.slots); b.entries > maxEntries {
		clear(b.trees)
		b.entries = 0
	}
	b.forget()
}

// give takes one q from a node for the rest of the pass.
func (p *Packer) give(node int, q *capacity.Shape, devices []int) {
	p.board.give(node, q, devices)
	p.given = append(p.given, int32(node))
}

// Board is a cluster on which executions are placed one at a time, by the rules
// of Pack. It is for benchmarks. It must not be used by two goroutines at once.
type Board struct{ board board }

// NewBoard returns a board of nodes, in the order in which equal ones are
// preferred. Capacity that their records count as used is taken.
func NewBoard(nodes iter.Seq[*compute.Node]) *Board {
	b := &Board{newBoard()}
	b.board.setNodes(nodes)
	return b
}

// SetMix sets the demand that free capacity is valued by.
func (b *Board) SetMix(m *compute.Mix) { b.board.setMix(m) }

// Placed is the place of one execution: the position of the node on the board,
// and those of the devices on the node.
type Placed struct {
	Node    int
	Devices []int
	shape   capacity.Shape
}

// Place puts an execution on the best node and reports whether it fits
// anywhere.
func (b *Board) Place(r *compute.Request) (Placed, bool) {
	q := b.board.types.Shape(r)
	node, score := b.board.scores(q).best()
	if score > worstFit {
		return Placed{Node: -1}, false
	}
	p := Placed{Node: node, shape: q}
	if q.GPUs > 0 {
		p.Devices = b.board.slots[node].pick(b.board.value, &q, make([]int, 0, q.GPUs))
	}
	b.board.give(node, &q, p.Devices)
	return p, true
}

// At returns the result that Place returns for an execution that is on the node
// and the devices already.
func (b *Board) At(r *compute.Request, node int, devices []int) Placed {
	return Placed{Node: node, Devices: devices, shape: b.board.types.Shape(r)}
}

// Release frees the capacity that Place gave.
func (b *Board) Release(p Placed) { b.board.giveBack(p.Node, &p.shape, p.Devices) }

// Fragmentation returns the share of the free GPU on nodes that take work that
// cannot be given as whole GPUs. It is 0 when none is free.
func (b *Board) Fragmentation() float64 { return b.board.fragmentation() }
