package fsm

import (
	"slices"

	"berth/compute"
	"berth/fsm/command"
)

// commitPlan places the executions that still can be placed. The rest stays queued,
// and the scheduler sees it again.
func (s *placement) commitPlan(c command.CommitPlan) command.Result {
	var r command.Result
	nodes := planNodes{nodes: &s.view.nodes, changed: make(map[compute.NodeID]*compute.Node)}
	for _, a := range c.Plan.Assignments {
		e, ok := s.view.executions.Get(a.Execution)
		if !ok || e.Status != compute.StatusQueued {
			continue // Stopped meanwhile, or placed already.
		}
		n, ok := nodes.get(a.Node)
		placed := e
		if ok {
			placed = e.On(n, a.GPUs)
		}
		if why := s.quota.overQuota(placed); why != compute.ReasonNone {
			s.wait(e, why)
			continue
		}
		if ok && fits(e.Request, n, a.GPUs) && acceptable(e, n, a.GPUs) {
			s.place(e, nodes.change(n), a, c.ViewIndex)
			r.Count++
		}
	}
	nodes.put()
	for _, p := range c.Plan.Preemptions {
		s.preempt(p)
	}
	for _, w := range c.Plan.Waiting {
		e, ok := s.view.executions.Get(w.Execution)
		if ok && e.Status == compute.StatusQueued && w.Reason.Waits() {
			s.wait(e, w.Reason)
		}
	}
	return r
}

// planNodes are the nodes on which one plan places work. Many assignments share a
// node: its record is copied and stored once for all of them.
type planNodes struct {
	nodes   *nodeRecords
	changed map[compute.NodeID]*compute.Node
	order   []*compute.Node // As they were first changed.
}

// get returns a node as the plan has left it so far.
func (h *planNodes) get(id compute.NodeID) (*compute.Node, bool) {
	if n, ok := h.changed[id]; ok {
		return n, true
	}
	return h.nodes.Get(id)
}

// change returns the record of a node that get returned, to write to.
func (h *planNodes) change(known *compute.Node) *compute.Node {
	if n, ok := h.changed[known.ID]; ok {
		return n
	}
	n := *known
	n.GPUs = slices.Clone(n.GPUs)
	h.changed[n.ID] = &n
	h.order = append(h.order, &n)
	return &n
}

// put stores the changed nodes. Nothing may be written after it.
func (h *planNodes) put() {
	for _, n := range h.order {
		h.nodes.put(n)
	}
}

// wait records why e waits.
func (s *placement) wait(known *compute.Execution, why compute.Reason) {
	if known.Reason == why {
		return
	}
	e := *known
	e.Reason = why
	s.execution.putExecution(&e)
}

// fits reports whether n can host a request on these shares of its GPUs now.
// A share of a GPU includes the same share of its memory; several GPUs are of
// one type.
func fits(r compute.Request, n *compute.Node, shares []compute.GPUShare) bool {
	if !n.Schedulable() || len(shares) != r.GPUs ||
		r.VCPUMilli > n.VCPUMilli-n.UsedVCPUMilli ||
		r.MemoryMiB > n.MemoryMiB-n.UsedMemoryMiB || !n.Offering(&r) {
		return false
	}
	for i, share := range shares {
		at := gpuAt(n.GPUs, share.GPU)
		twice := slices.ContainsFunc(shares[:i], func(before compute.GPUShare) bool {
			return before.GPU == share.GPU
		})
		if at < 0 || twice || share.Milli != r.MilliGPU {
			return false
		}
		g := &n.GPUs[at]
		mixed := i > 0 && g.Type != n.GPUs[gpuAt(n.GPUs, shares[0].GPU)].Type
		if mixed || !g.Is(r) || g.Health != compute.HealthOK ||
			g.UsedMilli+share.Milli > compute.WholeGPU {
			return false
		}
	}
	return true
}

// acceptable reports whether e has a price for the devices, which are of one type.
func acceptable(e *compute.Execution, n *compute.Node, shares []compute.GPUShare) bool {
	if len(shares) == 0 || !e.AnyOf() {
		return true
	}
	placed := *e
	return placed.Take(n.GPUs[gpuAt(n.GPUs, shares[0].GPU)].Type)
}

// place makes an attempt of e on n, as the plan from the view at viewIndex says. It
// adds the attempt's capacity to n, which the caller stores.
func (s *placement) place(known *compute.Execution, n *compute.Node, a compute.Assignment, viewIndex uint64) {
	e := *known
	n.UsedVCPUMilli += e.Request.VCPUMilli
	n.UsedMemoryMiB += e.Request.MemoryMiB
	shares := slices.Clone(a.GPUs)
	for i := range shares {
		share := &shares[i]
		g := &n.GPUs[gpuAt(n.GPUs, share.GPU)]
		g.UsedMilli += share.Milli
		share.VRAMMiB, share.Isolation = g.ShareMiB(share.Milli), g.Isolation(share.Milli)
	}
	s.statistics.observeStart(&e)
	if len(shares) > 0 {
		e.Take(n.GPUs[gpuAt(n.GPUs, shares[0].GPU)].Type)
	}
	e.Epoch = max(e.Epoch, s.view.meta.Epoch<<epochShift) + 1
	e.Status, e.Reason, e.PlacedAt = compute.StatusStarting, compute.ReasonNone, s.view.meta.Now
	s.execution.putExecution(&e)
	s.quota.changeRate(e.Org, e.FairPrice())
	s.view.putAttempt(&compute.Attempt{
		Execution: e.ID, Epoch: e.Epoch, Node: n.ID, GPUs: shares,
		PlacedAt: s.view.meta.Now, PlaceIndex: s.view.meta.Index,
		Placement: compute.Placement{ViewIndex: viewIndex, Choice: a.Choice},
	})
}
