package scheduler

import (
	"berth/compute"
	"berth/compute/capacity"
)

// The scores of nodes that do not fit a shape at present, by the reason. Lower
// is better, so the best score over all nodes is also the most hopeful refusal,
// and gives the reason why the execution waits.
const (
	neverFits     = 1<<38 - 1 - iota // Would not fit on the empty node.
	unprepared                       // Would fit, but the node has not prepared the environment.
	engineDown                       // Would fit, but the engine of the node does not answer.
	nodeDown                         // Would fit, but the node is down or drained, or its GPUs are.
	gpusBusy                         // Too few GPUs have the share free.
	resourcesBusy                    // The GPUs are free, vCPU or memory is not.
	worstFit                         // No fit scores worse than this.
)

// splitWeight is added to a score, in steps, for each island beside the first.
// It exceeds any cost.
const splitWeight = 1 << 28

// rankWeight is added to a score for each place in the preference of a request. It
// exceeds the weight of all islands of a node: the preference comes first.
const rankWeight = 1 << 33

// refusal returns why q does not fit on s. q must not fit.
func (s *slot) refusal(q *capacity.Shape) int64 {
	_, healthy := s.OfKind(q)
	switch {
	case s.tooSmall(q):
		return neverFits
	case !q.Offered(s.Record):
		return s.lacks(&q.Needs.Request)
	case !s.Open || healthy < q.GPUs:
		return nodeDown
	case s.FreeDevices(q) < q.GPUs:
		return gpusBusy
	}
	return resourcesBusy
}

// lacks returns what s does not offer of the needs of r.
func (s *slot) lacks(r *compute.Request) int64 {
	switch {
	case s.Record.LacksEnvironment(r):
		return unprepared
	case !s.Record.Equipped(r):
		return neverFits
	case !s.Open:
		return nodeDown
	}
	return engineDown
}

// tooSmall reports whether q does not fit on s even when s is empty.
func (s *slot) tooSmall(q *capacity.Shape) bool {
	known, _ := s.OfKind(q)
	return known < q.GPUs || s.Record.VCPUMilli < q.VCPU || s.Record.MemoryMiB < q.Memory
}

// reason returns ReasonNone when q fits on s, and otherwise why not.
func (s *slot) reason(q *capacity.Shape) compute.Reason {
	if s.Fits(q) {
		return compute.ReasonNone
	}
	return s.nodeReason(s.refusal(q), q)
}

// nodeReason returns the reason for a refusal of q by s. It names the engine that is
// missing, which a plan does not.
func (s *slot) nodeReason(score int64, q *capacity.Shape) compute.Reason {
	if score == neverFits && q.Needs != nil && !s.tooSmall(q) {
		if why := s.Record.RefusesEngine(&q.Needs.Request); why != compute.ReasonNone {
			return why
		}
	}
	return reasonOf(score)
}

// reasonOf returns the reason for a refusal, as plans record it.
func reasonOf(score int64) compute.Reason {
	switch score {
	case neverFits:
		return compute.ReasonNeverFits
	case unprepared:
		return compute.ReasonEnvironment
	case engineDown:
		return compute.ReasonEngineDown
	case nodeDown:
		return compute.ReasonNodesDown
	case gpusBusy:
		return compute.ReasonGPUsBusy
	case resourcesBusy:
		return compute.ReasonResourcesBusy
	}
	return compute.ReasonNone
}

// score returns how well q fits on node i: its cost in steps, plus splitWeight
// for each further island. CPU-only work of equal cost prefers nodes without
// GPUs.
func (b *board) score(i int, q *capacity.Shape) int64 {
	s := &b.slots[i]
	if !s.Fits(q) {
		return s.refusal(q)
	}
	c := b.value.change(s, q)
	cost := b.value.cost(s, q, c)
	if b.holds(i) {
		cost += b.taken(s, b.open[i*len(b.openings):], q, c)
	}
	return s.steps(q, c, cost)
}

// scoreOf is score for a slot that differs from the board's. q must fit.
func (b *board) scoreOf(s *slot, q *capacity.Shape) int64 {
	s.rest = b.value.rest(s.GPUFree, s.VCPU, s.Memory)
	var open [maxGroups]int64
	for j := range b.value.groups {
		open[j] = b.value.groups[j].on(s, s.Whole, s.VCPU, s.Memory)
	}
	c := b.value.change(s, q)
	return s.steps(q, c, b.value.cost(s, q, c)+b.taken(s, open[:], q, c))
}

// steps converts the cost of change c, for q on s, to a score.
func (s *slot) steps(q *capacity.Shape, c change, cost int64) int64 {
	score := ceilDiv(cost-slack, step*one)
	score = max(min(score, splitWeight/4), -splitWeight/4) * 2
	if q.GPUs == 0 && len(s.Devices) > 0 {
		score++
	}
	if s.Islands && q.GPUs > 1 {
		score += int64(s.splits(q, c.kind)) * splitWeight
	}
	score += int64(q.Kinds.Rank(c.kind)) * rankWeight
	return min(score, worstFit)
}

// ceilDiv returns a / n, rounded up.
func ceilDiv(a, n int64) int64 {
	quotient := a / n
	if a%n > 0 {
		quotient++
	}
	return quotient
}
