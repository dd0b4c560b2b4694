package admin

import (
	"io"
	"net/http"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
)

// raft serves the Raft configuration, snapshots and replicas, to operators.
type raft struct {
	*handler.Core
}

// Routes returns the routes of the group.
func (g *raft) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/raft/peers", Need: edge.NeedOperator,
			Summary: "The members of the Raft configuration.",
			Reply:   edge.Type[wire.Peers](), Handle: g.listPeers,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/raft/snapshot", Need: edge.NeedOperator,
			Summary: "A backup of the state: all that was acknowledged before the request. berth admin snapshot reads it.",
			Accepts: []string{answer.OctetStream}, Handle: g.saveSnapshot,
		},
		{
			Method: http.MethodPost, Path: edge.Root + "/admin/raft/transfer", Need: edge.NeedOperator, Bare: true,
			Summary: "Transfer leadership to another server. A leader does this once in the life of its process.",
			Body:    edge.Type[wire.NewTransfer](), Reply: edge.Type[wire.Transfer](), Handle: g.transfer,
		},
		{
			Method: http.MethodGet, Path: edge.Root + "/admin/state", Need: edge.NeedOperator,
			Summary: "The index, hash and totals of this node's replica.",
			Query:   edge.Type[wire.StateQuery](), Reply: edge.Type[wire.State](), Handle: g.replicaState,
		},
	}
}

// listPeers answers the Raft configuration.
func (g *raft) listPeers(r *edge.Request) (any, error) {
	if g.Config.Peers == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "This node does not know the Raft configuration.")
	}
	peers, err := g.Config.Peers(r.Ctx)
	if err != nil {
		return nil, err
	}
	return wire.Peers{Peers: append([]wire.Peer{}, peers...), Count: len(peers)}, nil
}

// saveSnapshot answers a backup of the state. The view is immutable, so that
// writing it blocks nothing.
func (g *raft) saveSnapshot(r *edge.Request) (any, error) {
	if err := g.Record(r, "backup.save", ""); err != nil {
		return nil, err
	}
	release, err := g.TakeDownload()
	if err != nil {
		return nil, err
	}
	view := r.View
	return answer.Download(func(w io.Writer) error {
		defer release()
		return view.WriteBackup(w, g.Config.Version, compute.InstantOf(g.Now()))
	}), nil
}

// transfer hands leadership to another server.
func (g *raft) transfer(r *edge.Request) (any, error) {
	in := r.Body.(*wire.NewTransfer)
	if g.Config.Transfer == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "This node cannot have another server lead.")
	}
	var to compute.NodeID
	if in.To != "" {
		id, err := compute.ParseNodeID(in.To)
		if err != nil {
			return nil, edge.NotFound()
		}
		to = id
	}
	if err := g.Record(r, "leader.transfer", in.To); err != nil {
		return nil, err
	}
	leader, err := g.Config.Transfer(r.Ctx, to)
	if err != nil {
		return nil, err
	}
	out := wire.Transfer{Leader: leader}
	if n, ok := r.View.Node(leader); ok {
		out.Name = n.Name
	}
	return out, nil
}

// replicaState answers the index and hashes of this node's replica. Nodes that
// have applied the same entries answer the same hashes.
func (g *raft) replicaState(r *edge.Request) (any, error) {
	sum := r.View.Summary()
	out := wire.State{
		Index: r.View.Index(), Term: r.View.Term(), Now: r.View.Now(), Format: r.View.Format(), Hash: sum.Hash,
		Tables:     r.View.TableSums(),
		Executions: sum.Executions, Archives: sum.Archives, Archived: sum.Archived,
		LiveAttempts: sum.Live, LedgerEntries: sum.Entries,
		Granted: sum.Granted, Charged: sum.Charged, Balance: sum.Balance, Held: sum.Held,
	}
	for range r.View.DueCallbacks(r.View.Now().Add(compute.CallbackWindow)) {
		out.Callbacks++
	}
	if r.Query.(*wire.StateQuery).Check {
		out.Checked = true
		if err := r.View.Check(); err != nil {
			out.Detail = err.Error()
		}
	}
	return out, nil
}
