package packing

import (
	"math"
	"math/rand/v2"

	"berth/bench/fragment"
	"berth/bench/trace"
)

// ranked is a published policy: it takes the fitting node with the highest
// score, and the first in the order of the nodes among equals. It caches scores
// for each shape and node until the node changes. The cache affects only the
// time.
type ranked struct {
	board  *board
	shapes []shape
	rows   [][]remembered // By shape, then by node; nil before its first use.
	score  scorer
}

// A scorer returns how good a fitting node is for a shape, higher is better,
// and the device for a share: anyDevice for the tightest one.
type scorer func(at int, n *node, s *shape) (score, device int)

// anyDevice leaves the choice of the device to the tightest fit.
const anyDevice = -1

// unfit is the score of a node that does not fit.
const unfit = math.MinInt32

// remembered is a cached score and the node's version that it belongs to.
type remembered struct {
	version uint32
	score   int32
	device  int32
}

// place allocates the best place for one of a shape.
func (p *ranked) place(shape int) (place, bool) {
	s := &p.shapes[shape]
	row := p.row(shape)
	best, score := -1, int32(unfit)
	for i := range row {
		r := &row[i]
		if n := &p.board.nodes[i]; r.version != n.version {
			p.rate(i, n, s, r)
		}
		if r.score > score {
			best, score = i, r.score
		}
	}
	if best < 0 {
		return place{}, false
	}
	at := place{node: best, devices: p.devices(&p.board.nodes[best], s, row[best].device)}
	p.board.take(s, at)
	return at, true
}

// row returns the cached scores of a shape.
func (p *ranked) row(shape int) []remembered {
	if p.rows[shape] == nil {
		p.rows[shape] = make([]remembered, len(p.board.nodes))
	}
	return p.rows[shape]
}

// rate computes and caches a node's score.
func (p *ranked) rate(at int, n *node, s *shape, r *remembered) {
	r.version, r.score = n.version, unfit
	if n.fits(s) {
		score, device := p.score(at, n, s)
		r.score, r.device = int32(score), int32(device)
	}
}

// devices returns the devices for one of s.
func (p *ranked) devices(n *node, s *shape, device int32) uint64 {
	switch {
	case s.gpus == 0:
		return 0
	case s.shared() && device != anyDevice:
		return 1 << device
	}
	return n.tightest(s)
}

// release frees a place.
func (p *ranked) release(shape int, at place) { p.board.give(&p.shapes[shape], at) }

// drawn is the random policy: any node that fits, and any of its devices that
// fits.
type drawn struct {
	ranked
	random *rand.Rand
}

// place allocates a random place.
func (p *drawn) place(shape int) (place, bool) {
	s := &p.shapes[shape]
	row := p.row(shape)
	best, fit := -1, 0
	for i := range row {
		r := &row[i]
		if n := &p.board.nodes[i]; r.version != n.version {
			p.rate(i, n, s, r)
		}
		if r.score == unfit {
			continue
		}
		fit++
		if p.random.IntN(fit) == 0 {
			best = i
		}
	}
	if best < 0 {
		return place{}, false
	}
	n := &p.board.nodes[best]
	device, enough := anyDevice, 0
	for i, free := range n.devices {
		if s.shared() && free >= s.milli {
			enough++
			if p.random.IntN(enough) == 0 {
				device = i
			}
		}
	}
	at := place{node: best, devices: p.devices(n, s, int32(device))}
	p.board.take(s, at)
	return at, true
}

// The largest machine of the published traces, which scales the scores.
const (
	largestCPU = 128_000
	largestGPU = 8 * trace.WholeGPU
)

// scoreEqual scores all fitting nodes equally.
func scoreEqual(int, *node, *shape) (score, device int) { return 0, anyDevice }

// scoreBestFit is the best-fit of the published comparison, a whole number up
// to 100. Less vCPU and GPU left is better, and each has half the weight.
func scoreBestFit(_ int, n *node, s *shape) (score, device int) {
	left := float64(n.cpu-s.cpu)/largestCPU*0.5 + float64(n.free-s.demand())/largestGPU*0.5
	return int((1 - left) * 100), anyDevice
}

// scoreDotProduct is that of Tetris (SIGCOMM 2014) as in the published
// comparison. A smaller product of the free and the requested resources is
// better.
func scoreDotProduct(_ int, n *node, s *shape) (score, device int) {
	dot := float64(n.cpu)/largestCPU*(float64(s.cpu)/largestCPU) +
		float64(n.free)/largestGPU*(float64(s.demand())/largestGPU)
	return int(100 * (1 - dot/2)), anyDevice
}

// scorePacking prefers devices that are already shared, then idle devices of a
// node in use, then idle nodes, as in the published comparison.
func scorePacking(_ int, n *node, s *shape) (score, device int) {
	if s.gpus == 0 {
		return 0, anyDevice
	}
	idle := n.count(trace.WholeGPU)
	if idle == len(n.devices) {
		return max(100/3-idle, idle), anyDevice
	}
	// Devices in use come before idle ones, so idle ones get only the rest.
	if s.milli == trace.WholeGPU {
		return max(100/2-s.gpus, 100/3), anyDevice
	}
	least := trace.WholeGPU
	for _, free := range n.devices {
		if free >= s.milli {
			least = min(least, free)
		}
	}
	if least == trace.WholeGPU {
		return max(100/2-1, 100/3), anyDevice
	}
	return max(100-least*100/trace.WholeGPU/10, 100/2), anyDevice
}

// scoreClustering prefers nodes with pods of only the same kind, then nodes
// with such pods among others, then idle nodes, as in the published comparison.
// Among equals it prefers the fullest node.
func scoreClustering(_ int, n *node, s *shape) (score, device int) {
	if s.gpus == 0 {
		return 0, anyDevice
	}
	kinds := 0
	for _, count := range n.kinds {
		if count > 0 {
			kinds++
		}
	}
	score = 100 / 4 * (largestGPU - int(n.free)) / largestGPU
	switch {
	case n.kinds[s.kind] > 0 && kinds == 1:
		score += 100 * 3 / 4
	case n.kinds[s.kind] > 0:
		score += 100 * 2 / 4
	case kinds == 0:
		score += 100 / 4
	}
	return score, anyDevice
}

// gradient is FGD: the node whose fragment grows least.
type gradient struct {
	classes []fragment.Class
	frag    []float64 // By node, as of the version beside it.
	version []uint32
	scratch []int
}

// newGradient returns FGD for a number of nodes.
func newGradient(classes []fragment.Class, nodes int) *gradient {
	return &gradient{classes: classes, frag: make([]float64, nodes), version: make([]uint32, nodes)}
}

// score returns the sigmoid of the number of GPUs by which the fragment
// shrinks, as a whole number up to 100. Near 0 a step is 40 thousandths. The
// rounding is worth two points, and is as published.
func (g *gradient) score(at int, n *node, s *shape) (score, device int) {
	if g.version[at] != n.version {
		g.frag[at], g.version[at] = fragment.Expected(n.cpu, n.model, n.devices, g.classes), n.version
	}
	before, cpu := g.frag[at], n.cpu-s.cpu
	if !s.shared() {
		g.scratch = afterWhole(n, s, g.scratch)
		return sigmoid(before - fragment.Expected(cpu, n.model, g.scratch, g.classes)), anyDevice
	}
	device = anyDevice
	var tried [trace.WholeGPU/64 + 1]uint64 // Devices with equal capacity left are equivalent.
	for i, free := range n.devices {
		if free < s.milli || tried[free/64]&(1<<(free%64)) != 0 {
			continue
		}
		tried[free/64] |= 1 << (free % 64)
		g.scratch = append(g.scratch[:0], n.devices...)
		g.scratch[i] -= s.milli
		this := sigmoid(before - fragment.Expected(cpu, n.model, g.scratch, g.classes))
		if device == anyDevice || this > score {
			score, device = this, i
		}
	}
	return score, device
}

// sigmoid returns the score of a fragment that shrinks by the given
// thousandths.
func sigmoid(shrinks float64) int {
	return int(100 / (1 + math.Exp(-shrinks/1000)))
}
