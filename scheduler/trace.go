package scheduler

import (
	"cmp"
	"context"
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Trace returns the plan of Pack for v, and a record of the decision about each
// execution that the plan names. A record has the scores of at most best nodes, and the
// number of other nodes by reason, given the earlier decisions of the plan. The error is
// that of ctx.
func Trace(ctx context.Context, v View, best int) (compute.Plan, []compute.Decision, error) {
	plan := Pack(v)
	named := make([]compute.Decision, 0, len(plan.Assignments)+len(plan.Waiting))
	at := make(map[compute.ExecutionID]int, cap(named))
	for _, a := range plan.Assignments {
		at[a.Execution] = len(named)
		named = append(named, compute.Decision{Execution: a.Execution, Node: a.Node, GPUs: a.GPUs, Choice: a.Choice})
	}
	for _, w := range plan.Waiting {
		at[w.Execution] = len(named)
		named = append(named, compute.Decision{Execution: w.Execution, Reason: w.Reason})
	}
	// All nodes are scored only for executions in the plan: the queue may be far
	// longer.
	NewPacker().packTraced(v, func(p *Packer, e *compute.Execution, q *capacity.Shape) {
		if i, asked := at[e.ID]; asked && ctx.Err() == nil {
			p.describe(&named[i], q, best)
		}
	})
	return plan, named, ctx.Err()
}

// describe records in d how all nodes score q.
func (p *Packer) describe(d *compute.Decision, q *capacity.Shape, best int) {
	counts, fitting := map[compute.Reason]int{}, p.fitting[:0]
	for i := range p.slots {
		score := p.score(i, q)
		if reason := p.slots[i].nodeReason(score, q); reason != compute.ReasonNone {
			counts[reason]++
			continue
		}
		fitting = append(fitting, compute.NodeScore{Node: p.slots[i].Record.ID, Score: score})
	}
	p.fitting = fitting
	slices.SortStableFunc(fitting, func(a, b compute.NodeScore) int { return cmp.Compare(a.Score, b.Score) })
	d.Best = slices.Clone(fitting[:min(best, len(fitting))])
	d.Refused = refused(counts)
}
