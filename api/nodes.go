package api

import (
	"net/http"
	"time"

	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// nodes serves the nodes of the cluster, to operators.
type nodes struct {
	*core
}

// routes returns the routes of the group.
func (g *nodes) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/admin/nodes", need: needOperator,
			summary: "The nodes of the cluster with their GPUs.",
			reply:   of[wire.Nodes](), handle: g.listNodes,
		},
		{
			method: http.MethodPost, path: root + "/admin/nodes/{id}/drain", need: needOperator, bare: true,
			summary: "Stop placing work on a node. Running executions finish, or are moved or ended by a deadline.",
			body:    of[wire.NewDrain](), reply: of[wire.Node](), handle: g.drainNode,
		},
		{
			method: http.MethodPost, path: root + "/admin/nodes/{id}/undrain", need: needOperator,
			summary: "Resume placing work on a node.",
			reply:   of[wire.Node](), handle: g.undrainNode,
		},
		{
			method: http.MethodDelete, path: root + "/admin/nodes/{id}", need: needOperator,
			summary: "Remove an idle node permanently. Refused if that would cost the quorum or the only copy of a blob.",
			query:   of[wire.RemovalQuery](), reply: of[wire.Message](), handle: g.removeNode,
		},
	}
}

// listNodes answers all nodes.
func (g *nodes) listNodes(r *request) (any, error) {
	out := wire.Nodes{Nodes: []wire.Node{}}
	var clocks map[compute.NodeID]time.Duration
	if g.cfg.Clocks != nil {
		clocks = g.cfg.Clocks(r.ctx)
	}
	for n := range r.view.Nodes() {
		shown := nodeOf(r.view.Show(n))
		if ahead, known := clocks[n.ID]; known {
			shown.ClockAhead = new(ahead.Milliseconds())
		}
		out.Nodes = append(out.Nodes, shown)
	}
	out.Count = len(out.Nodes)
	return out, nil
}

// nodeOf returns a node as shown to operators.
func nodeOf(shown fsm.ShownNode) wire.Node {
	n := &shown.Node
	out := wire.Node{
		ID: n.ID, Name: n.Name, Role: n.Role, State: n.State, Drained: n.Drained,
		API: n.API, RPC: n.RPC, Gossip: n.Gossip, Metrics: n.Metrics, Version: n.Version,
		Format: n.KnownFormat(), JoinedAt: n.JoinedAt, ChangedAt: n.ChangedAt,
		VCPU: float64(n.VCPUMilli) / 1000, UsedVCPU: float64(n.UsedVCPUMilli) / 1000,
		MemoryMiB: n.MemoryMiB, UsedMemory: n.UsedMemoryMiB,
		LiveWork: shown.Live, Leaving: shown.Leaving, DrainBy: atOrNull(n.DrainBy), GPUs: make([]wire.GPU, len(n.GPUs)),
		Gaps: n.Gaps, InventoryAt: n.InventoryVersion,
	}
	for i, g := range n.GPUs {
		out.GPUs[i] = wire.GPU{
			ID: g.ID, Index: g.Index, Type: g.Type, Model: g.Model, VRAMMiB: g.VRAMMiB,
			PCIBus: g.PCIBus, MIG: g.MIG, Driver: g.Driver, Health: g.Health,
			Simulated: g.Simulated, UsedMilli: g.UsedMilli, Island: g.Island,
		}
		if g.Parent != "" {
			out.GPUs[i].Parent = &g.Parent
		}
	}
	return out
}

func (g *nodes) drainNode(r *request) (any, error) {
	seconds := r.body.(*wire.NewDrain).Deadline
	return g.drain(r, true, time.Duration(seconds)*time.Second)
}

func (g *nodes) undrainNode(r *request) (any, error) { return g.drain(r, false, 0) }

// nodeID returns the id of the node in the path. The node exists, unless this
// is a repeat.
func nodeID(r *request) (compute.NodeID, error) {
	id, err := compute.ParseNodeID(r.params["id"])
	if err != nil {
		return id, errNotFound()
	}
	if _, ok := r.view.Node(id); !ok && !r.repeat {
		return id, errNotFound()
	}
	return id, nil
}

// drain stops or resumes placing work on a node. Running executions on a
// drained node end within a time, or never for 0. The answer is the node right
// after that.
func (g *nodes) drain(r *request, drained bool, within time.Duration) (any, error) {
	id, err := nodeID(r)
	if err != nil {
		return nil, err
	}
	result, err := g.proposeAndSee(r, fsm.DrainNode{
		Op: g.op(r), Actor: r.caller.actor, Node: id, Drained: drained, Within: within,
	})
	switch {
	case err != nil:
		return nil, err
	case result.Node != nil:
		return nodeOf(*result.Node), nil
	}
	n, ok := r.view.Node(id) // An older leader's decision says no more.
	if !ok {
		return nil, errNotFound()
	}
	return nodeOf(r.view.Show(n)), nil
}

// removeNode removes a node permanently, unless that would cost the quorum or
// the only copy of a blob.
func (g *nodes) removeNode(r *request) (any, error) {
	done := wire.Message{Message: "The node is removed."}
	if id, err := compute.ParseNodeID(r.params["id"]); err == nil && r.view.RemovedNode(id) {
		return done, nil // By a request whose answer may have been lost.
	}
	id, err := nodeID(r)
	if err != nil {
		return nil, err
	}
	if g.cfg.CheckRemoval != nil {
		if err := g.cfg.CheckRemoval(r.ctx, id); err != nil {
			return nil, err
		}
	}
	remove := fsm.RemoveNode{Op: g.op(r), Actor: r.caller.actor, Node: id}
	if g.cfg.CheckCopies != nil && !r.query.(*wire.RemovalQuery).Force {
		if remove.Beside, err = g.cfg.CheckCopies(r.ctx, id); err != nil {
			return nil, err
		}
		if r.view.Allows(remove) != nil {
			remove.Beside = nil // The one that is too old may be the one to remove.
		}
	}
	if _, err := g.propose(r, remove); err != nil {
		return nil, err
	}
	return done, nil
}
