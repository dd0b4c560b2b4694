package worker

import (
	"context"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
)

// serveVariables gives a worker the variables for one of its live attempts, which no
// other node gets.
func (s *Server) serveVariables(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if len(data) != len(compute.UUID{}) {
		return nil, compute.Errorf(compute.CodeInvalid, "Not the identifier of an execution.")
	}
	id := compute.ExecutionID{UUID: compute.UUID(data)}
	view := s.Machine.View()
	e := assigned(view, peer.ID, id)
	if e == nil {
		var err error
		if view, err = s.Read(ctx); err != nil {
			return nil, err
		}
		if e = assigned(view, peer.ID, id); e == nil {
			return nil, compute.Errorf(compute.CodeNotFound, "This node has no live attempt of that execution.")
		}
	}
	variables, err := s.Variables(view, e)
	if err != nil {
		return nil, err
	}
	return rpc.NewCodec().Marshal(variables), nil
}

// assigned returns an execution of which a node has a live attempt, or nil.
func assigned(view *fsm.View, node compute.NodeID, id compute.ExecutionID) *compute.Execution {
	for _, w := range view.Work(node) {
		if w.Execution.ID == id {
			return w.Execution
		}
	}
	return nil
}

// Variables asks the servers for the variables of attempts.
type Variables struct{ Up Upstream }

// Variables returns what the user of a live attempt keeps for all own executions.
func (v Variables) Variables(ctx context.Context, w compute.Work) ([]compute.EnvVariable, error) {
	answer, err := ask(ctx, v.Up, askEach, methodVars, w.Execution.ID.UUID[:])
	if err != nil {
		return nil, err
	}
	var variables []compute.EnvVariable
	if err := rpc.NewCodec().Unmarshal(answer, &variables); err != nil {
		return nil, compute.Errorf(compute.CodeInternal, "The variables cannot be read: %w", err)
	}
	return variables, nil
}
