package scheduler

// Limits of what a Packer remembers; beyond them it forgets and starts again.
const (
	maxShapes = 1024 // Rows; one takes about 16 bytes per node.
	maxTypes  = 1024 // Names of GPU types, misspelt ones included.
)

// Packer computes plans and remembers scores from one to the next. A plan
// depends on its view alone: a Packer that has seen other views gives the same
// plan as a new one. It must not be used by two goroutines at once.
type Packer struct {
	types types
	slots []slot // In the order of the view's nodes.
	rows  map[shape]*row

	log        []int32 // Nodes in the order in which they changed.
	generation uint64  // Rises when log is started again.
	given      []int32 // Nodes that the last pass gave something of.
}

// NewPacker returns a Packer that remembers nothing yet.
func NewPacker() *Packer {
	return &Packer{types: types{}, rows: map[shape]*row{}}
}

// sync brings the slots to what the view's nodes say. Records are shared and
// never change, so a node with the same record and nothing given away since
// needs no look.
func (p *Packer) sync(v View) {
	if len(p.types) > maxTypes {
		*p = *NewPacker()
	}
	for _, i := range p.given {
		p.slots[i].node = nil
	}
	p.given = p.given[:0]
	count := 0
	for n := range v.Nodes() {
		if count == len(p.slots) {
			p.slots = append(p.slots, slot{})
			p.forget()
		}
		if s := &p.slots[count]; s.node != n {
			s.load(n, p.types)
			p.log = append(p.log, int32(count))
		}
		count++
	}
	if count < len(p.slots) {
		p.slots = p.slots[:count]
		p.forget()
	}
	if len(p.log) > 4*len(p.slots)+maxShapes {
		p.forget()
	}
}

// forget makes every row score all nodes again.
func (p *Packer) forget() {
	p.log = p.log[:0]
	p.generation++
}

// row returns the scores of a shape, up to date.
func (p *Packer) row(q shape) *row {
	r := p.rows[q]
	if r == nil {
		if len(p.rows) >= maxShapes {
			clear(p.rows)
		}
		r = &row{shape: q}
		p.rows[q] = r
	}
	if r.generation != p.generation || len(p.log)-r.cursor > len(p.slots)/2 || r.tree == nil {
		r.rebuild(p.slots)
	} else {
		for _, i := range p.log[r.cursor:] {
			r.update(p.slots, i)
		}
	}
	r.generation, r.cursor = p.generation, len(p.log)
	return r
}

// give takes one of q from a node for the rest of the pass.
func (p *Packer) give(node int, q *shape, devices []int) {
	p.slots[node].take(q, devices)
	p.log = append(p.log, int32(node))
	p.given = append(p.given, int32(node))
}
