package scheduler

import (
	"bytes"
	"iter"
	"slices"

	"berth/compute"
)

// maxRounds bounds how many plans a what-if question computes: what is beyond
// them in the queue waits.
const maxRounds = 64

// WhatIf returns what Pack would do with the queue of v on other nodes: plan
// after plan, until nothing more starts. No time passes meanwhile.
func WhatIf(v LiveView, change compute.WhatIf) compute.Forecast {
	out := compute.Forecast{Index: v.Index()}
	for _, id := range change.Remove {
		out.Lost += len(v.Work(id))
	}
	as := newOverlay(v, compute.WhatIf{})
	before := as.settle()
	out.Now = len(before)
	to := newOverlay(v, change)
	out.Nodes = len(to.nodes)
	out.Starts = to.settle()
	for _, e := range to.queue {
		out.Waiting = append(out.Waiting, compute.Waiting{Execution: e.ID, Reason: e.Reason})
	}
	return out
}

// overlay is a view with other nodes, on which plans are carried out.
type overlay struct {
	View

	nodes   []*compute.Node      // By id.
	queue   []*compute.Execution // In the order of the view.
	started []compute.Work       // Beside those of the view.
}

func newOverlay(v View, change compute.WhatIf) *overlay {
	o := &overlay{View: v, queue: slices.Collect(Order(v))}
	for n := range v.Nodes() {
		if slices.Contains(change.Remove, n.ID) {
			continue
		}
		if slices.Contains(change.Drain, n.ID) {
			drained := *n
			drained.Drained = true
			n = &drained
		}
		o.nodes = append(o.nodes, n)
	}
	for i := range change.Add {
		o.nodes = append(o.nodes, &change.Add[i])
	}
	slices.SortFunc(o.nodes, func(a, b *compute.Node) int { return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	return o
}

// Nodes yields the nodes of the question.
func (o *overlay) Nodes() iter.Seq[*compute.Node] { return slices.Values(o.nodes) }

// Node returns one of them.
func (o *overlay) Node(id compute.NodeID) (*compute.Node, bool) {
	i := o.at(id)
	if i < 0 {
		return nil, false
	}
	return o.nodes[i], true
}

func (o *overlay) at(id compute.NodeID) int {
	return slices.IndexFunc(o.nodes, func(n *compute.Node) bool { return n.ID == id })
}

// NodesChanged knows nothing: all are looked at.
func (o *overlay) NodesChanged(compute.Revision) ([]compute.NodeID, compute.Revision, bool) {
	return nil, compute.Revision{}, false
}

// Lines returns the lines of what has not started.
func (o *overlay) Lines(below int) (priority int, orgs []compute.OrgID) {
	for _, e := range o.queue { // By priority, the highest first.
		if e.Priority >= below || len(orgs) > 0 && e.Priority != priority {
			continue
		}
		if priority = e.Priority; !slices.Contains(orgs, e.Org) {
			orgs = append(orgs, e.Org)
		}
	}
	slices.SortFunc(orgs, func(a, b compute.OrgID) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
	return priority, orgs
}

// Line returns part of a line of what has not started.
func (o *overlay) Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution {
	var out []*compute.Execution
	found := after == nil
	for _, e := range o.queue { // Within a line by age.
		switch {
		case e.Priority != priority || e.Org != org:
		case !found:
			found = e.ID == after.ID
		case len(out) < limit:
			out = append(out, e)
		}
	}
	return out
}

// Share counts what has started too.
func (o *overlay) Share(org compute.OrgID) compute.Share {
	share := o.View.Share(org)
	for _, w := range o.started {
		if w.Execution.Org == org {
			share.Rate += w.Execution.FairPrice()
		}
	}
	return share
}

// Load counts what has started too.
func (o *overlay) Load(q compute.Quota) compute.Load {
	load := o.View.Load(q)
	for _, w := range o.started {
		if q.Concerns(w.Execution) {
			load.Attempts++
			load.MilliGPU += w.Execution.Request.HeldMilliGPU()
		}
	}
	return load
}

// Held yields what has started too.
func (o *overlay) Held(org compute.OrgID) iter.Seq[compute.Work] {
	return func(yield func(compute.Work) bool) {
		for w := range o.View.Held(org) {
			if !yield(w) {
				return
			}
		}
		for _, w := range o.started {
			if w.Execution.Org == org && !yield(w) {
				return
			}
		}
	}
}

// Work returns what has started too.
func (o *overlay) Work(node compute.NodeID) []compute.Work {
	out := slices.Clone(o.View.Work(node))
	for _, w := range o.started {
		if w.Attempt.Node == node {
			out = append(out, w)
		}
	}
	return out
}

// settle carries out plans until nothing more starts and returns what did.
func (o *overlay) settle() (starts []compute.Assignment) {
	p := NewPacker()
	for range maxRounds {
		plan := p.Pack(o)
		o.wait(plan.Waiting)
		if len(plan.Assignments) == 0 {
			break
		}
		for _, a := range plan.Assignments {
			o.start(a)
		}
		starts = append(starts, plan.Assignments...)
	}
	return starts
}

// wait notes why executions wait.
func (o *overlay) wait(waiting []compute.Waiting) {
	reasons := make(map[compute.ExecutionID]compute.Reason, len(waiting))
	for _, w := range waiting {
		reasons[w.Execution] = w.Reason
	}
	for i, e := range o.queue {
		if reason, ok := reasons[e.ID]; ok {
			changed := *e
			changed.Reason = reason
			o.queue[i] = &changed
		}
	}
}

// start takes an execution off the queue and gives it what it got.
func (o *overlay) start(a compute.Assignment) {
	i := slices.IndexFunc(o.queue, func(e *compute.Execution) bool { return e.ID == a.Execution })
	e := o.queue[i]
	o.queue = slices.Delete(o.queue, i, i+1)
	o.started = append(o.started, compute.Work{Execution: e, Attempt: &compute.Attempt{
		Execution: e.ID, Node: a.Node, GPUs: a.GPUs, PlacedAt: o.Now(),
	}})
	at := o.at(a.Node)
	n := *o.nodes[at]
	n.GPUs = slices.Clone(n.GPUs)
	n.UsedVCPUMilli += e.Request.VCPUMilli
	n.UsedMemoryMiB += e.Request.MemoryMiB
	for _, share := range a.GPUs {
		n.GPUs[slices.IndexFunc(n.GPUs, func(g compute.GPU) bool { return g.ID == share.GPU })].UsedMilli += share.Milli
	}
	o.nodes[at] = &n
}
