package api

import "berth/api/wire"

// replicaState answers what this node's own replica of the state is: two nodes
// that have applied the same entries answer the same hash.
func (s *Server) replicaState(r *request) (any, error) {
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
