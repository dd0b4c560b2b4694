package scheduler

import (
	"slices"

	"berth/compute"
	"berth/compute/capacity"
	"berth/scheduler/queue"
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

// PackAll returns the plan of a pass of p that decides about every execution of
// the queue.
func PackAll(p *Packer, v View) compute.Plan {
	s := p.newPass(v)
	s.reserveSoftly(queue.InOrder(v).Next)
	all := queue.InOrder(v)
	for len(s.plan.Assignments) < MaxAssignments {
		e := all.Next()
		if e == nil || s.shares > 0 && s.shares+e.Request.GPUs > MaxShares {
			break
		}
		if s.decide(e) {
			all.Placed()
		}
	}
	return s.plan
}

// Decisions returns how many executions a pass of p over v decides about.
func Decisions(p *Packer, v View) int {
	n := 0
	p.packTraced(v, func(*Packer, *compute.Execution, *capacity.Shape) { n++ })
	return n
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
