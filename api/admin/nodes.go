package admin

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// nodes serves the nodes of the cluster, to operators.
type nodes struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *nodes) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/nodes", Need: edge.NeedOperator,
			Summary: "The nodes of the cluster with their GPUs.",
			Query:   edge.Type[wire.PageQuery](), Reply: edge.Type[wire.Nodes](), Handle: g.listNodes,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/nodes/{id}/drain", Need: edge.NeedOperator, Bare: true,
			Summary: "Stop placing work on a node. Running executions finish, or are moved or ended by a deadline.",
			Body:    edge.Type[wire.NewDrain](), Reply: edge.Type[wire.Node](), Handle: g.drainNode,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/nodes/{id}/undrain", Need: edge.NeedOperator,
			Summary: "Resume placing work on a node.",
			Reply:   edge.Type[wire.Node](), Handle: g.undrainNode,
		},
		{
			Method: http.MethodDelete, Path: edge.Root + "/admin/nodes/{id}", Need: edge.NeedOperator,
			Summary: "Remove an idle node permanently. Refused if that would cost the quorum or the only copy of a blob.",
			Query:   edge.Type[wire.RemovalQuery](), Reply: edge.Type[wire.Message](), Handle: g.removeNode,
		},
	}
}

// listNodes answers a page of the nodes, by identifier.
func (g *nodes) listNodes(r *edge.Request) (any, error) {
	out := wire.Nodes{Nodes: []wire.Node{}}
	var clocks map[compute.NodeID]time.Duration
	if g.Config.Clocks != nil {
		clocks = g.Config.Clocks(r.Ctx)
	}
	all := slices.Collect(r.View.Nodes())
	page, err := handler.Paged(r, all, func(n **compute.Node) string { return (*n).ID.String() })
	if err != nil {
		return nil, err
	}
	for _, n := range page {
		shown := nodeOf(r.View, r.View.Show(n))
		if ahead, known := clocks[n.ID]; known {
			shown.ClockAhead = new(ahead.Milliseconds())
		}
		out.Nodes = append(out.Nodes, shown)
	}
	out.Count = len(all)
	return out, nil
}

// offersOf returns offers with the names of environments in place of their keys.
func offersOf(view *fsm.View, offers []compute.Offer) []compute.Offer {
	names := make(map[compute.Offer]compute.Offer)
	for e := range view.Environments() {
		names[e.Offer()] = compute.EnvironmentOffer(e.Name)
	}
	out := make([]compute.Offer, 0, len(offers))
	for _, offer := range offers {
		out = append(out, cmp.Or(names[offer], offer))
	}
	slices.Sort(out)
	return out
}

// nodeOf returns a node as shown to operators.
func nodeOf(view *fsm.View, shown command.ShownNode) wire.Node {
	n := &shown.Node
	out := wire.Node{
		ID: n.ID, Name: n.Name, Role: n.Role, State: n.State, Drained: n.Drained,
		API: n.API, RPC: n.RPC, Gossip: n.Gossip, Metrics: n.Metrics, Version: n.Version,
		Format: n.KnownFormat(), JoinedAt: n.JoinedAt, ChangedAt: n.ChangedAt,
		VCPU: float64(n.VCPUMilli) / 1000, UsedVCPU: float64(n.UsedVCPUMilli) / 1000,
		MemoryMiB: n.MemoryMiB, UsedMemory: n.UsedMemoryMiB,
		LiveWork: shown.Live, Leaving: shown.Leaving, DrainBy: wire.AtOrNull(n.DrainBy), GPUs: make([]wire.GPU, len(n.GPUs)),
		Gaps: n.Gaps, InventoryAt: n.InventoryVersion, ScratchMiB: n.ScratchMiB,
		Offers: offersOf(view, n.Offers), EngineFault: n.EngineFault,
	}
	for i, g := range n.GPUs {
		out.GPUs[i] = wire.GPU{
			ID: g.ID, Index: g.Index, Type: g.Type, Model: g.Model, VRAMMiB: g.VRAMMiB,
			PCIBus: g.PCIBus, MIG: g.MIG, Driver: g.Driver, Health: g.Health,
			Simulated: g.Simulated, UsedMilli: g.UsedMilli, Island: g.Island,
		}
		out.GPUs[i].Capability, out.GPUs[i].BFloat16 = wire.CapabilityOf(&g)
		if g.Parent != "" {
			out.GPUs[i].Parent = &g.Parent
		}
	}
	return out
}

func (g *nodes) drainNode(r *edge.Request) (any, error) {
	seconds := r.Body.(*wire.NewDrain).Deadline
	return g.drain(r, true, time.Duration(seconds)*time.Second)
}

func (g *nodes) undrainNode(r *edge.Request) (any, error) { return g.drain(r, false, 0) }

// nodeID returns the id of the node in the path. The node exists, unless this
// is a repeat.
func nodeID(r *edge.Request) (compute.NodeID, error) {
	id, err := compute.ParseNodeID(r.Params["id"])
	if err != nil {
		return id, edge.NotFound()
	}
	if _, ok := r.View.Node(id); !ok && !r.Repeat {
		return id, edge.NotFound()
	}
	return id, nil
}

// drain stops or resumes placing work on a node. Running executions on a
// drained node end within a time, or never for 0. The answer is the node right
// after that.
func (g *nodes) drain(r *edge.Request, drained bool, within time.Duration) (any, error) {
	id, err := nodeID(r)
	if err != nil {
		return nil, err
	}
	result, err := g.ProposeAndSee(r, command.DrainNode{
		Op: g.Op(r), Actor: r.Caller.Actor, Node: id, Drained: drained, Within: within,
	})
	switch {
	case err != nil:
		return nil, err
	case result.Node != nil:
		return nodeOf(r.View, *result.Node), nil
	}
	n, ok := r.View.Node(id) // An older leader's decision says no more.
	if !ok {
		return nil, edge.NotFound()
	}
	return nodeOf(r.View, r.View.Show(n)), nil
}

// removeNode removes a node permanently, unless that would cost the quorum or
// the only copy of a blob.
func (g *nodes) removeNode(r *edge.Request) (any, error) {
	done := wire.Message{Message: "The node is removed."}
	if id, err := compute.ParseNodeID(r.Params["id"]); err == nil && r.View.RemovedNode(id) {
		return done, nil // By a request whose answer may have been lost.
	}
	id, err := nodeID(r)
	if err != nil {
		return nil, err
	}
	if g.Config.CheckRemoval != nil {
		if err := g.Config.CheckRemoval(r.Ctx, id); err != nil {
			return nil, err
		}
	}
	remove := command.RemoveNode{Op: g.Op(r), Actor: r.Caller.Actor, Node: id}
	if g.Config.CheckCopies != nil && !r.Query.(*wire.RemovalQuery).Force {
		if remove.Beside, err = g.Config.CheckCopies(r.Ctx, id); err != nil {
			return nil, err
		}
		if r.View.Allows(remove) != nil {
			remove.Beside = nil // The one that is too old may be the one to remove.
		}
	}
	if _, err := g.Propose(r, remove); err != nil {
		return nil, err
	}
	return done, nil
}
