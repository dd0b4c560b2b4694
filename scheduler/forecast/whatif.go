package forecast

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"

	"berth/compute"
	"berth/scheduler"
)

// maxRounds bounds how many plans a what-if question computes. Executions
// beyond them in the queue wait.
const maxRounds = 64

// WhatIf returns the plans of Pack for the queue of v on other nodes: one
// after the other, until nothing more starts. No time passes between the plans. The
// error is that of ctx, which is checked before each plan.
func WhatIf(ctx context.Context, v View, change compute.WhatIf) (compute.Forecast, error) {
	out := compute.Forecast{Index: v.Index()}
	removed := setOf(change.Remove)
	for id := range removed {
		out.Lost += len(v.Work(id))
	}
	queue := slices.Collect(scheduler.Order(v))
	before, err := newOverlay(v, queue, compute.WhatIf{}).settle(ctx)
	if err != nil {
		return out, err
	}
	to := newOverlay(v, queue, change)
	out.Now, out.Nodes = len(before), len(to.nodes)
	if out.Starts, err = to.settle(ctx); err != nil {
		return out, err
	}
	for _, e := range to.queue {
		out.Waiting = append(out.Waiting, compute.Waiting{Execution: e.ID, Reason: e.Reason})
	}
	return out, nil
}

func setOf(nodes []compute.NodeID) map[compute.NodeID]bool {
	set := make(map[compute.NodeID]bool, len(nodes))
	for _, id := range nodes {
		set[id] = true
	}
	return set
}

// overlay is a view with other nodes, on which plans are carried out.
type overlay struct {
	scheduler.View

	nodes      []*compute.Node      // By id.
	queue      []*compute.Execution // Executions that have not started, in the order of the view.
	lines      map[lineKey][]*compute.Execution
	places     map[compute.ExecutionID]int // Positions in the lines.
	orgs       map[int][]compute.OrgID     // By priority: the organizations with lines, by id.
	priorities []int                       // The highest first.

	// Work started in the simulation, beside the live attempts of the view.
	byNode map[compute.NodeID][]compute.Work
	byOrg  map[compute.OrgID][]compute.Work
	rates  map[compute.OrgID]compute.Price
	loads  map[loadKey]compute.Load
}

// lineKey identifies a line of the queue.
type lineKey struct {
	priority int
	org      compute.OrgID
}

// loadKey identifies the load that quotas count: of an organization, one of its keys, one of
// its tags or a hardware profile.
type loadKey struct {
	org     compute.OrgID
	key     compute.KeyID
	tag     string
	profile string
}

func newOverlay(v scheduler.View, queue []*compute.Execution, change compute.WhatIf) *overlay {
	o := &overlay{
		View: v, queue: slices.Clone(queue),
		byNode: map[compute.NodeID][]compute.Work{}, byOrg: map[compute.OrgID][]compute.Work{},
		rates: map[compute.OrgID]compute.Price{}, loads: map[loadKey]compute.Load{},
	}
	removed, drained := setOf(change.Remove), setOf(change.Drain)
	for n := range v.Nodes() {
		if removed[n.ID] {
			continue
		}
		if drained[n.ID] {
			closed := *n
			closed.Drained = true
			n = &closed
		}
		o.nodes = append(o.nodes, n)
	}
	for i := range change.Add {
		o.nodes = append(o.nodes, &change.Add[i])
	}
	slices.SortFunc(o.nodes, func(a, b *compute.Node) int { return bytes.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	o.arrange()
	return o
}

// arrange sorts the queue into its lines.
func (o *overlay) arrange() {
	o.lines, o.places = map[lineKey][]*compute.Execution{}, map[compute.ExecutionID]int{}
	o.orgs = map[int][]compute.OrgID{}
	for _, e := range o.queue { // Within a line by age.
		key := lineKey{e.Priority, e.Org}
		if len(o.lines[key]) == 0 {
			o.orgs[e.Priority] = append(o.orgs[e.Priority], e.Org)
		}
		o.places[e.ID] = len(o.lines[key])
		o.lines[key] = append(o.lines[key], e)
	}
	o.priorities = slices.SortedFunc(maps.Keys(o.orgs), func(a, b int) int { return cmp.Compare(b, a) })
	for _, orgs := range o.orgs {
		slices.SortFunc(orgs, func(a, b compute.OrgID) int { return bytes.Compare(a.UUID[:], b.UUID[:]) })
	}
}

// Nodes yields the nodes of the overlay.
func (o *overlay) Nodes() iter.Seq[*compute.Node] { return slices.Values(o.nodes) }

// Node returns one of them.
func (o *overlay) Node(id compute.NodeID) (*compute.Node, bool) {
	i, known := o.at(id)
	if !known {
		return nil, false
	}
	return o.nodes[i], true
}

func (o *overlay) at(id compute.NodeID) (int, bool) {
	return slices.BinarySearchFunc(o.nodes, id, func(n *compute.Node, id compute.NodeID) int {
		return bytes.Compare(n.ID.UUID[:], id.UUID[:])
	})
}

// NodesChanged reports that any node may have changed.
func (o *overlay) NodesChanged(compute.Revision) ([]compute.NodeID, compute.Revision, bool) {
	return nil, compute.Revision{}, false
}

// Lines returns the lines of executions that have not started.
func (o *overlay) Lines(below int) (priority int, orgs []compute.OrgID) {
	for _, p := range o.priorities {
		if p < below {
			return p, o.orgs[p]
		}
	}
	return 0, nil
}

// Line returns part of a line of executions that have not started.
func (o *overlay) Line(priority int, org compute.OrgID, after *compute.Execution, limit int) []*compute.Execution {
	line := o.lines[lineKey{priority, org}]
	if after != nil {
		line = line[o.places[after.ID]+1:]
	}
	return line[:min(limit, len(line))]
}

// Queued reports none: QueueChanged names none.
func (o *overlay) Queued(compute.ExecutionID) (*compute.Execution, bool) { return nil, false }

// QueueChanged reports that anything may have changed.
func (o *overlay) QueueChanged(compute.Revision) ([]compute.ExecutionID, compute.Revision, bool) {
	return nil, compute.Revision{}, false
}

// Share includes started executions.
func (o *overlay) Share(org compute.OrgID) compute.Share {
	share := o.View.Share(org)
	share.Rate += o.rates[org]
	return share
}

// Load includes started executions.
func (o *overlay) Load(q compute.Quota) compute.Load {
	load, more := o.View.Load(q), o.loads[loadKey{q.Org, q.Key, q.Tag, q.Profile}]
	return compute.Load{Attempts: load.Attempts + more.Attempts, MilliGPU: load.MilliGPU + more.MilliGPU}
}

// Held includes started executions.
func (o *overlay) Held(org compute.OrgID) iter.Seq[compute.Work] {
	return func(yield func(compute.Work) bool) {
		for w := range o.View.Held(org) {
			if !yield(w) {
				return
			}
		}
		for _, w := range o.byOrg[org] {
			if !yield(w) {
				return
			}
		}
	}
}

// Work includes started executions.
func (o *overlay) Work(node compute.NodeID) []compute.Work {
	return slices.Concat(o.View.Work(node), o.byNode[node])
}

// settle carries out plans until nothing more starts, and returns the
// assignments. The error is that of ctx.
func (o *overlay) settle(ctx context.Context) (starts []compute.Assignment, err error) {
	p := scheduler.NewPacker()
	for range maxRounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		plan := p.Pack(o)
		o.apply(plan)
		starts = append(starts, plan.Assignments...)
		if len(plan.Assignments) == 0 && len(plan.Waiting) < scheduler.MaxWaiting {
			break
		}
	}
	return starts, nil
}

// apply starts the assigned executions of a plan, and records why the others
// wait.
func (o *overlay) apply(plan compute.Plan) {
	places := make(map[compute.ExecutionID]compute.Assignment, len(plan.Assignments))
	for _, a := range plan.Assignments {
		places[a.Execution] = a
	}
	reasons := make(map[compute.ExecutionID]compute.Reason, len(plan.Waiting))
	for _, w := range plan.Waiting {
		reasons[w.Execution] = w.Reason
	}
	left := o.queue[:0]
	for _, e := range o.queue {
		if a, starts := places[e.ID]; starts {
			o.start(e, a)
			continue
		}
		if reason, news := reasons[e.ID]; news {
			changed := *e
			changed.Reason = reason
			e = &changed
		}
		left = append(left, e)
	}
	o.queue = left
	o.arrange()
}

// start places an execution.
func (o *overlay) start(e *compute.Execution, a compute.Assignment) {
	at, _ := o.at(a.Node)
	e = e.On(o.nodes[at], a.GPUs)
	w := compute.Work{Execution: e, Attempt: &compute.Attempt{
		Execution: e.ID, Node: a.Node, GPUs: a.GPUs, PlacedAt: o.Now(),
	}}
	o.byNode[a.Node] = append(o.byNode[a.Node], w)
	o.byOrg[e.Org] = append(o.byOrg[e.Org], w)
	o.rates[e.Org] += e.FairPrice()
	o.count(loadKey{org: e.Org}, e)
	if !e.Key.IsZero() {
		o.count(loadKey{org: e.Org, key: e.Key}, e)
	}
	for i, tag := range e.Tags {
		if !slices.Contains(e.Tags[:i], tag) {
			o.count(loadKey{org: e.Org, tag: tag}, e)
		}
	}
	kind := compute.ProfileType(e.Profile)
	if o.count(loadKey{org: e.Org, profile: kind}, e); kind != e.Profile {
		o.count(loadKey{org: e.Org, profile: e.Profile}, e)
	}
	n := *o.nodes[at]
	n.GPUs = slices.Clone(n.GPUs)
	n.UsedVCPUMilli += e.Request.VCPUMilli
	n.UsedMemoryMiB += e.Request.MemoryMiB
	for _, share := range a.GPUs {
		n.GPUs[slices.IndexFunc(n.GPUs, func(g compute.GPU) bool { return g.ID == share.GPU })].UsedMilli += share.Milli
	}
	o.nodes[at] = &n
}

func (o *overlay) count(at loadKey, e *compute.Execution) {
	load := o.loads[at]
	load.Attempts++
	load.MilliGPU += e.Request.HeldMilliGPU()
	o.loads[at] = load
}
