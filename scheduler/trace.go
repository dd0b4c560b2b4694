package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
)

// Trace returns the plan that Pack returns for v, and how it decided about each
// execution that the plan names: the best nodes, at most so many, and the others
// by reason, with what earlier decisions had given away.
func Trace(v View, best int) (compute.Plan, []compute.Decision) {
	var decisions []compute.Decision
	plan := NewPacker().packTraced(v, func(p *Packer, e *compute.Execution, q *shape) {
		decisions = append(decisions, p.decision(e, q, best))
	})
	at := make(map[compute.ExecutionID]int, len(decisions))
	for i := range decisions {
		at[decisions[i].Execution] = i
	}
	named := make([]compute.Decision, 0, len(plan.Assignments))
	for _, a := range plan.Assignments {
		d := decisions[at[a.Execution]]
		d.Node, d.GPUs, d.Choice = a.Node, a.GPUs, a.Choice
		named = append(named, d)
	}
	for _, w := range plan.Waiting {
		if i, ok := at[w.Execution]; ok {
			d := decisions[i]
			d.Reason = w.Reason
			named = append(named, d)
		}
	}
	return plan, named
}

// decision returns how all nodes stand to q now.
func (p *Packer) decision(e *compute.Execution, q *shape, best int) compute.Decision {
	d := compute.Decision{Execution: e.ID}
	counts := map[compute.Reason]int{}
	for i := range p.slots {
		score := p.score(i, q)
		if reason := reasonOf(score); reason != compute.ReasonNone {
			counts[reason]++
			continue
		}
		d.Best = append(d.Best, compute.NodeScore{Node: p.slots[i].node.ID, Score: score})
	}
	slices.SortStableFunc(d.Best, func(a, b compute.NodeScore) int { return cmp.Compare(a.Score, b.Score) })
	if len(d.Best) > best {
		d.Best = slices.Clone(d.Best[:best])
	}
	d.Refused = refused(counts)
	return d
}
