package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
)

// Explain returns why the execution waits in v: how every node stands to it,
// and what goes first. It counts what is free in v, before any execution of the
// queue is placed. When it may start and what could be moved for it are for
// Estimate and Defragment.
func Explain(v View, id compute.ExecutionID) compute.Explanation {
	out := compute.Explanation{Index: v.Index()}
	var ahead []*compute.Execution
	var found *compute.Execution
	for e := range Order(v) {
		out.Queued++
		switch {
		case found != nil:
		case e.ID == id:
			found, out.Position = e, out.Queued
		default:
			ahead = append(ahead, e)
		}
	}
	if found == nil {
		return out
	}
	out.Reason = found.Reason
	out.Running, out.Limit = v.Load(compute.Quota{Org: found.Org}).Attempts, v.Quotas(found.Org)[0].Concurrent
	out.Ahead = aheadOf(found, ahead)
	askNodes(v, found, &out)
	return out
}

// askNodes counts the nodes by how they stand to e.
func askNodes(v View, e *compute.Execution, out *compute.Explanation) {
	t := newTypes()
	q := t.shape(&e.Request)
	counts := map[compute.Reason]int{}
	var s slot
	for n := range v.Nodes() {
		s.load(n, t)
		counts[s.standing(&q)]++
		out.Nodes++
	}
	out.Fits = counts[compute.ReasonNone]
	out.Refused = refused(counts)
}

// refused returns the counts in the order of the reasons.
func refused(counts map[compute.Reason]int) []compute.Refused {
	var out []compute.Refused
	for reason, n := range counts {
		if reason != compute.ReasonNone && n > 0 {
			out = append(out, compute.Refused{Reason: reason, Nodes: n})
		}
	}
	slices.SortFunc(out, func(a, b compute.Refused) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

// aheadOf sums up what goes before e.
func aheadOf(e *compute.Execution, ahead []*compute.Execution) (out compute.Ahead) {
	types := map[string]*compute.Demand{}
	for _, a := range ahead {
		milli := a.Request.HeldMilliGPU()
		if types[a.Request.GPUType] == nil {
			types[a.Request.GPUType] = &compute.Demand{}
		}
		sums := []*compute.Demand{&out.Demand, types[a.Request.GPUType]}
		if a.Org == e.Org {
			sums = append(sums, &out.Own)
			if len(out.IDs) < compute.MaxAhead {
				out.IDs = append(out.IDs, a.ID)
			}
		}
		for _, d := range sums {
			d.Executions++
			d.MilliGPU += milli
		}
	}
	for name, d := range types {
		out.Types = append(out.Types, compute.TypeAhead{GPUType: name, Demand: *d})
	}
	slices.SortFunc(out.Types, func(a, b compute.TypeAhead) int { return cmp.Compare(a.GPUType, b.GPUType) })
	return out
}
