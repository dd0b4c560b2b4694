package scheduler

import (
	"slices"

	"berth/compute"
)

// NoFit is the score of a node that does not take a request.
const NoFit = neverFits

// ScoreAll scores every node for a request without caches, and returns the
// devices that the request would get on each.
func ScoreAll(nodes []*compute.Node, mix *compute.Mix, r *compute.Request) (scores []int64, devices [][]int) {
	b := newBoard()
	b.setMix(mix)
	b.setNodes(slices.Values(nodes))
	q := b.types.Shape(r)
	b.refresh()
	for i := range b.slots {
		score, on := b.score(i, &q), []int(nil)
		if score > worstFit {
			score = NoFit
		} else {
			on = b.slots[i].pick(b.value, &q, nil)
		}
		scores, devices = append(scores, score), append(devices, on)
	}
	return scores, devices
}

// PreemptTries returns how many sets of attempts a pass over v tries.
func PreemptTries(v View) int {
	s := NewPacker().newPass(v)
	s.walk()
	return s.tries
}

// Entries returns the counted entries of a packer's score trees, and their
// number once all are up to date.
func Entries(p *Packer) (counted, actual int) {
	for q := range p.trees {
		actual += len(p.scores(q).levels[0])
	}
	return p.entries, actual
}
