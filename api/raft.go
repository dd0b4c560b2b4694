package api

import (
	"io"
	"net/http"

	"berth/api/wire"
	"berth/compute"
)

// raft serves the Raft configuration, snapshots and replicas, to operators.
type raft struct {
	*core
}

// routes returns the routes of the group.
func (g *raft) routes() []route {
	return []route{
		{
			method: http.MethodGet, path: root + "/admin/raft/peers", need: needOperator,
			summary: "The members of the Raft configuration.",
			reply:   of[wire.Peers](), handle: g.listPeers,
		},
		{
			method: http.MethodGet, path: root + "/admin/raft/snapshot", need: needOperator,
			summary: "A backup of the state: all that was acknowledged before the request. berth admin snapshot reads it.",
			accepts: []string{octetStream}, handle: g.saveSnapshot,
		},
		{
			method: http.MethodPost, path: root + "/admin/raft/transfer", need: needOperator, bare: true,
			summary: "Transfer leadership to another server. A leader does this once in the life of its process.",
			body:    of[wire.NewTransfer](), reply: of[wire.Transfer](), handle: g.transfer,
		},
		{
			method: http.MethodGet, path: root + "/admin/state", need: needOperator,
			summary: "The index, hash and totals of this node's replica.",
			query:   of[wire.StateQuery](), reply: of[wire.State](), handle: g.replicaState,
		},
	}
}

// listPeers answers the Raft configuration.
func (g *raft) listPeers(r *request) (any, error) {
	if g.cfg.Peers == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "This node does not know the Raft configuration.")
	}
	peers, err := g.cfg.Peers(r.ctx)
	if err != nil {
		return nil, err
	}
	return wire.Peers{Peers: append([]wire.Peer{}, peers...), Count: len(peers)}, nil
}

// saveSnapshot answers a backup of the state. The view is immutable, so that
// writing it blocks nothing.
func (g *raft) saveSnapshot(r *request) (any, error) {
	release, err := g.takeDownload()
	if err != nil {
		return nil, err
	}
	view := r.view
	return download(func(w io.Writer) error {
		defer release()
		return view.WriteBackup(w, g.cfg.Version, compute.InstantOf(g.now()))
	}), nil
}

// transfer hands leadership to another server.
func (g *raft) transfer(r *request) (any, error) {
	in := r.body.(*wire.NewTransfer)
	if g.cfg.Transfer == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "This node cannot have another server lead.")
	}
	var to compute.NodeID
	if in.To != "" {
		id, err := compute.ParseNodeID(in.To)
		if err != nil {
			return nil, errNotFound()
		}
		to = id
	}
	leader, err := g.cfg.Transfer(r.ctx, to)
	if err != nil {
		return nil, err
	}
	out := wire.Transfer{Leader: leader}
	if n, ok := r.view.Node(leader); ok {
		out.Name = n.Name
	}
	return out, nil
}

// replicaState answers the index and hashes of this node's replica. Nodes that
// have applied the same entries answer the same hashes.
func (g *raft) replicaState(r *request) (any, error) {
	sum := r.view.Summary()
	out := wire.State{
		Index: r.view.Index(), Term: r.view.Term(), Now: r.view.Now(), Format: r.view.Format(), Hash: sum.Hash,
		Tables:     r.view.TableSums(),
		Executions: sum.Executions, Archives: sum.Archives, Archived: sum.Archived,
		LiveAttempts: sum.Live, LedgerEntries: sum.Entries,
		Granted: sum.Granted, Charged: sum.Charged, Balance: sum.Balance, Held: sum.Held,
	}
	for range r.view.Callbacks() {
		out.Callbacks++
	}
	if r.query.(*wire.StateQuery).Check {
		out.Checked = true
		if err := r.view.Check(); err != nil {
			out.Detail = err.Error()
		}
	}
	return out, nil
}
