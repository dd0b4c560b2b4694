package api

import (
	"berth/api/wire"
	"berth/compute"
)

// transfer has another server lead.
func (s *Server) transfer(r *request) (any, error) {
	in := r.body.(*wire.NewTransfer)
	if s.cfg.Transfer == nil {
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
	leader, err := s.cfg.Transfer(r.ctx, to)
	if err != nil {
		return nil, err
	}
	out := wire.Transfer{Leader: leader}
	if n, ok := r.view.Node(leader); ok {
		out.Name = n.Name
	}
	return out, nil
}
