package scheduler

import "berth/compute/capacity"

// fan is how many entries of one level the next level summarizes.
const fan = 16

// scoreTree caches how well one shape fits on every node. An entry is the score
// of a node followed by its position, so that the least entry is the best node,
// the first of equals. Each level above the nodes holds the least of every
// sixteen entries below it. The best node is read in one step. An update costs
// one score and a scan of the blocks that the node was the least of.
type scoreTree struct {
	shape      capacity.Shape
	levels     [][]int64 // By node, by block of nodes, and so on; the last has one entry.
	generation uint64    // The board's generation of scores.
	epoch      uint64    // The board's epoch of opening prices.
	cursor     uint64    // Position in the change log up to which changes are included.
}

// positions is how many nodes a board can distinguish: the low bits of an
// entry.
const (
	positionBits = 24
	positions    = 1 << positionBits
)

func entry(score int64, node int) int64 { return score<<positionBits | int64(node) }

// size allocates the levels for n nodes.
func (r *scoreTree) size(n int) {
	r.levels = r.levels[:0]
	for {
		r.levels = append(r.levels, make([]int64, n))
		if n <= 1 {
			return
		}
		n = (n + fan - 1) / fan
	}
}

// summarize fills the levels above the first.
func (r *scoreTree) summarize() {
	for l := 1; l < len(r.levels); l++ {
		for block := range r.levels[l] {
			r.levels[l][block] = least(r.levels[l-1], block)
		}
	}
}

// least returns the least entry of a block.
func least(level []int64, block int) int64 {
	from := block * fan
	best := level[from]
	for _, e := range level[from+1 : min(from+fan, len(level))] {
		best = min(best, e)
	}
	return best
}

// set changes the score of a node.
func (r *scoreTree) set(node int, score int64) {
	e, at := entry(score, node), node
	old := r.levels[0][node]
	if e == old {
		return
	}
	r.levels[0][node] = e
	for l := 1; l < len(r.levels); l++ {
		at /= fan
		was := r.levels[l][at]
		switch {
		case e < was:
			r.levels[l][at] = e
		case was == old:
			e = least(r.levels[l-1], at)
			if e == old {
				return
			}
			r.levels[l][at] = e
		default:
			return
		}
	}
}

// best returns the best node and its score. The score is the refusal when no
// node fits.
func (r *scoreTree) best() (node int, score int64) {
	top := r.levels[len(r.levels)-1]
	if len(top) == 0 {
		return -1, neverFits
	}
	return int(top[0] & (positions - 1)), top[0] >> positionBits
}

// runnerUp returns the best node beside the winner and its score, -1 when no
// other node fits the shape.
func (r *scoreTree) runnerUp(winner int) (node int, score int64) {
	second, at := entry(neverFits, positions-1), winner
	for _, level := range r.levels {
		from := at / fan * fan
		for i, e := range level[from:min(from+fan, len(level))] {
			if from+i != at {
				second = min(second, e)
			}
		}
		at /= fan
	}
	if second>>positionBits > worstFit {
		return -1, 0
	}
	return int(second & (positions - 1)), second >> positionBits
}
