package worker

import (
	"context"
	"crypto/sha256"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// EnvironmentReport is how far a node is with an environment, as it travels.
type EnvironmentReport struct {
	Environment compute.EnvironmentID     `cbor:"1,keyasint"`
	Status      compute.EnvironmentStatus `cbor:"2,keyasint,omitempty"`
	SizeMiB     int64                     `cbor:"3,keyasint,omitempty"`
	Error       string                    `cbor:"4,keyasint,omitempty"`
}

// environmentsAnswer is all that nodes prepare, with what the asking node reported.
type environmentsAnswer struct {
	All    []compute.Environment `cbor:"1,keyasint,omitempty"`
	Digest compute.Hash          `cbor:"2,keyasint"`
	Same   bool                  `cbor:"3,keyasint,omitempty"` // As the digest of the request: All is left out.
}

// EnvironmentsFor returns the environments that a node prepares, with its own
// reports alone.
func EnvironmentsFor(view *fsm.View, id compute.NodeID) []compute.Environment {
	var all []compute.Environment
	for e := range view.Environments() {
		env := *e
		env.Nodes = nil
		if own := e.On(id); own != nil {
			env.Nodes = []compute.NodeEnvironment{*own}
		}
		all = append(all, env)
	}
	return all
}

// serveEnvironments tells a worker what it prepares.
func (s *Server) serveEnvironments(_ context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	codec := rpc.NewCodec()
	out := environmentsAnswer{All: EnvironmentsFor(s.Machine.View(), peer.ID)}
	out.Digest = sha256.Sum256(codec.Marshal(out.All))
	if len(data) == len(out.Digest) && compute.Hash(data) == out.Digest {
		out.All, out.Same = nil, true
	}
	return codec.Marshal(out), nil
}

// serveEnvironmentReport proposes the report of a worker on an environment.
func (s *Server) serveEnvironmentReport(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var report EnvironmentReport
	if err := rpc.NewCodec().Unmarshal(data, &report); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The report cannot be read: %w", err)
	}
	_, _, err := s.Propose(ctx, report.Command(peer.ID))
	return nil, err
}

// Command returns the command that records the report of a node.
func (r EnvironmentReport) Command(node compute.NodeID) command.ReportEnvironment {
	return command.ReportEnvironment{
		Node: node, Environment: r.Environment, Status: r.Status, SizeMiB: r.SizeMiB, Error: r.Error,
	}
}

// Environments asks the servers what this worker prepares, and reports to them. It is
// not safe for concurrent use.
type Environments struct {
	Up Upstream

	last environmentsAnswer
}

// List returns the environments that the node prepares.
func (e *Environments) List(ctx context.Context) ([]compute.Environment, error) {
	data, err := ask(ctx, e.Up, askEach, methodEnvironments, e.last.Digest[:])
	if err != nil {
		return nil, err
	}
	var answer environmentsAnswer
	if err := rpc.NewCodec().Unmarshal(data, &answer); err != nil {
		return nil, compute.Errorf(compute.CodeInternal, "The environments cannot be read: %w", err)
	}
	if !answer.Same {
		e.last = answer
	}
	return e.last.All, nil
}

// Report records how far this node is with an environment.
func (e *Environments) Report(ctx context.Context, report EnvironmentReport) error {
	_, err := ask(ctx, e.Up, askEach, methodEnvironmentReport, rpc.NewCodec().Marshal(report))
	return err
}
