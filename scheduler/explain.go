package scheduler

import (
	"cmp"
	"slices"

	"berth/compute"
	"berth/compute/capacity"
)

// Survey holds the data that all explanations from one view share: the queue in its
// order, and the nodes. It must not be used by two goroutines at once.
type Survey struct {
	view  View
	queue []*compute.Execution
	at    map[compute.ExecutionID]int // Places in the queue.
	types *capacity.Kinds
	slots []slot
}

// NewSurvey reads the queue and the nodes of v.
func NewSurvey(v View) *Survey {
	s := &Survey{view: v, at: map[compute.ExecutionID]int{}, types: capacity.NewKinds()}
	for e := range Order(v) {
		s.at[e.ID] = len(s.queue)
		s.queue = append(s.queue, e)
	}
	for n := range v.Nodes() {
		s.slots = append(s.slots, slot{})
		s.slots[len(s.slots)-1].load(n, s.types)
	}
	return s
}

// Waiting returns an execution of the queue, nil when it is not queued.
func (s *Survey) Waiting(id compute.ExecutionID) *compute.Execution {
	i, waits := s.at[id]
	if !waits {
		return nil
	}
	return s.queue[i]
}

// Explain returns why the execution waits: how many nodes refuse it for which
// reason, and the work ahead of it. It counts the free capacity in the view, before
// any execution of the queue is placed. Package forecast estimates when it may
// start and finds work that could be moved for it.
func (s *Survey) Explain(id compute.ExecutionID) compute.Explanation {
	out := compute.Explanation{Index: s.view.Index(), Queued: len(s.queue)}
	e := s.Waiting(id)
	if e == nil {
		return out
	}
	out.Position, out.Reason = s.at[id]+1, e.Reason
	own := s.view.Quotas(e.Org)[0]
	out.Running, out.Limit = s.view.Load(own).Attempts, own.Concurrent
	out.Ahead = aheadOf(e, s.queue[:s.at[id]])
	s.countNodes(e, &out)
	return out
}

// countNodes counts the nodes by their reason to refuse e.
func (s *Survey) countNodes(e *compute.Execution, out *compute.Explanation) {
	q := s.types.Shape(&e.Request)
	counts := map[compute.Reason]int{}
	for i := range s.slots {
		counts[s.slots[i].reason(&q)]++
	}
	out.Nodes, out.Fits = len(s.slots), counts[compute.ReasonNone]
	out.Refused = refused(counts)
	if e.Reason == compute.ReasonNeverFits {
		out.Reason = engineReason(counts)
	}
}

// engineReason returns the reason of an execution that fits on no node: the engine that
// it lacks, if a node would host it otherwise.
func engineReason(counts map[compute.Reason]int) compute.Reason {
	for _, why := range []compute.Reason{compute.ReasonTrustedOnly, compute.ReasonNoEngine} {
		if counts[why] > 0 {
			return why
		}
	}
	return compute.ReasonNeverFits
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

// aheadOf sums up the executions before e.
func aheadOf(e *compute.Execution, ahead []*compute.Execution) (out compute.Ahead) {
	types := map[string]*compute.Demand{}
	for _, a := range ahead {
		milli := a.Request.HeldMilliGPU()
		name := a.Request.Types()
		if types[name] == nil {
			types[name] = &compute.Demand{}
		}
		sums := []*compute.Demand{&out.Demand, types[name]}
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
