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
	view, e, err := s.assigned(ctx, peer, data)
	if err != nil {
		return nil, err
	}
	variables, err := s.Variables(view, e)
	if err != nil {
		return nil, err
	}
	return rpc.NewCodec().Marshal(variables), nil
}

// serveCredentials gives a worker the registry credentials for one of its live
// attempts.
func (s *Server) serveCredentials(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	view, e, err := s.assigned(ctx, peer, data)
	if err != nil {
		return nil, err
	}
	credentials, err := s.Credentials(view, e)
	if err != nil {
		return nil, err
	}
	return rpc.NewCodec().Marshal(credentials), nil
}

// serveStorage gives a worker what a mount for one of its live attempts reaches the
// bucket with.
func (s *Server) serveStorage(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	view, e, err := s.assigned(ctx, peer, data)
	if err != nil {
		return nil, err
	}
	if e.Storage == nil && e.OutputsPrefix == "" {
		return nil, compute.Errorf(compute.CodeNotFound, "That execution uses no storage.")
	}
	access, err := s.Storage(view, e)
	if err != nil {
		return nil, err
	}
	return rpc.NewCodec().Marshal(access), nil
}

// assigned returns the execution that a worker names, of which it has a live attempt.
func (s *Server) assigned(ctx context.Context, peer rpc.Peer, data []byte) (*fsm.View, *compute.Execution, error) {
	if len(data) != len(compute.UUID{}) {
		return nil, nil, compute.Errorf(compute.CodeInvalid, "Not the identifier of an execution.")
	}
	id := compute.ExecutionID{UUID: compute.UUID(data)}
	view := s.Machine.View()
	if e := assigned(view, peer.ID, id); e != nil {
		return view, e, nil
	}
	view, err := s.Read(ctx)
	if err != nil {
		return nil, nil, err
	}
	e := assigned(view, peer.ID, id)
	if e == nil {
		return nil, nil, errNoAttempt()
	}
	return view, e, nil
}

func errNoAttempt() error {
	return compute.Errorf(compute.CodeNotFound, "This node has no live attempt of that execution.")
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

// Variables returns the variables that the user of a live attempt keeps for all
// own executions.
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

// Credentials returns the credentials for the registry of a live attempt's
// images.
func (v Variables) Credentials(ctx context.Context, w compute.Work) (*compute.RegistryCredentials, error) {
	answer, err := ask(ctx, v.Up, askEach, methodRegistry, w.Execution.ID.UUID[:])
	if err != nil {
		return nil, err
	}
	var credentials *compute.RegistryCredentials
	if err := rpc.NewCodec().Unmarshal(answer, &credentials); err != nil {
		return nil, compute.Errorf(compute.CodeInternal, "The registry credentials cannot be read: %w", err)
	}
	return credentials, nil
}

// Storage returns how a mount for a live attempt reaches its bucket.
func (v Variables) Storage(ctx context.Context, w compute.Work) (*compute.StorageAccess, error) {
	answer, err := ask(ctx, v.Up, askEach, methodStorage, w.Execution.ID.UUID[:])
	if err != nil {
		return nil, err
	}
	access := new(compute.StorageAccess)
	if err := rpc.NewCodec().Unmarshal(answer, access); err != nil {
		return nil, compute.Errorf(compute.CodeInternal, "The access to storage cannot be read: %w", err)
	}
	return access, nil
}
