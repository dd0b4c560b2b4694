package worker

import (
	"context"
	"crypto/sha256"
	"io"
	"time"

	"berth/attempt"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/loop"
)

// Server answers the workers of the cluster on a server.
type Server struct {
	Cluster *cluster.Cluster
	Machine *fsm.FSM
	Read    func(ctx context.Context) (*fsm.View, error) // Everything acknowledged before the call.
	Blob    func(ctx context.Context, hash compute.Hash) ([]byte, error)
	Put     func(ctx context.Context, data []byte) (compute.Hash, error)
	Chunks  func(ctx context.Context, manifest compute.Hash) (map[compute.Hash]int, error) // Chunks of a tree.
	Propose Propose

	// Variables returns the variables that the user of an execution keeps for all
	// own executions.
	Variables func(view *fsm.View, e *compute.Execution) ([]compute.EnvVariable, error)
	// Credentials returns the credentials for the registry of an execution's
	// images.
	Credentials func(view *fsm.View, e *compute.Execution) (*compute.RegistryCredentials, error)
	// Storage returns how a mount for an execution reaches its bucket.
	Storage func(view *fsm.View, e *compute.Execution) (*compute.StorageAccess, error)
	// Model lists what the organization of an execution stores of its model.
	Model func(view *fsm.View, e *compute.Execution) StoredModel
	// CopyModel writes a file of that model from an offset on.
	CopyModel func(
		ctx context.Context, view *fsm.View, e *compute.Execution, name string, offset int64, to io.Writer,
	) error
	// Archive archives the output of an ended attempt of a node, and reports whether the
	// node may remove it. The code is not_found for another node's attempt.
	Archive func(ctx context.Context, owner compute.NodeID, execution compute.ExecutionID, epoch uint64) (bool, error)

	reads readCount
}

// Handle registers the methods of workers.
func (s *Server) Handle() {
	s.Cluster.Handle(methodPoll, cluster.Workers, s.servePoll)
	s.Cluster.Handle(methodStart, cluster.Workers, s.serveStart)
	s.Cluster.Handle(methodFinish, cluster.Workers, s.serveFinish)
	s.Cluster.Handle(methodReady, cluster.Workers, s.serveReady)
	s.Cluster.Handle(methodBundle, cluster.Workers, s.serveBundle)
	s.Cluster.Handle(methodVars, cluster.Workers, s.serveVariables)
	s.Cluster.Handle(methodRegistry, cluster.Workers, s.serveCredentials)
	s.Cluster.Handle(methodStorage, cluster.Workers, s.serveStorage)
	s.Cluster.Handle(methodGet, cluster.Workers, s.serveGet)
	s.Cluster.Handle(methodPut, cluster.Workers, s.servePut)
	s.Cluster.Handle(methodModel, cluster.Workers, s.serveModel)
	s.Cluster.HandleStream(methodModelFile, cluster.Workers, s.serveModelFile)
	s.Cluster.Handle(methodArchive, cluster.Workers, s.serveArchive)
	s.Cluster.Handle(methodAnnounce, cluster.Workers, s.serveAnnounce)
	s.Cluster.Handle(methodEnvironments, cluster.Workers, s.serveEnvironments)
	s.Cluster.Handle(methodEnvironmentReport, cluster.Workers, s.serveEnvironmentReport)
}

// servePoll answers once the work of the worker is another than it has, or
// when it was held for long enough.
func (s *Server) servePoll(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	codec := rpc.NewCodec()
	var req pollRequest
	if err := codec.Unmarshal(data, &req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The poll cannot be read: %w", err)
	}
	view, err := s.pollView(ctx, req)
	if err != nil {
		return nil, err
	}
	if view.ClusterEpoch() < s.Cluster.Epoch() {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The new epoch of the cluster has not reached this server's state.").Retry(time.Second)
	}
	held, cancel := context.WithTimeout(ctx, pollHold)
	defer cancel()
	work := workFor(view, peer.ID)
	digest := digestOf(codec, work)
	for digest == req.Digest {
		next, err := s.Machine.Wait(held, view.Index()+1)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			break // Held for long enough.
		}
		if next.ClusterEpoch() != view.ClusterEpoch() {
			view = next
			break // Attempts of the epoch before must end at once.
		}
		if !sameWork(view.Work(peer.ID), next.Work(peer.ID)) {
			work = workFor(next, peer.ID)
			digest = digestOf(codec, work)
		}
		view = next
		loop.Sleep(held, pollBatch)
	}
	return codec.Marshal(pollAnswer{
		Work: work, Index: view.Index(), Digest: digest, Life: view.ClusterEpoch(),
	}), nil
}

// pollView returns a view that is not older than the worker's knowledge.
// Attempts that it began through another server must not seem to be gone.
func (s *Server) pollView(ctx context.Context, req pollRequest) (*fsm.View, error) {
	if req.Fresh || s.Cluster.LastContact() > attempt.NodeTTL {
		return s.Read(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, pollBehind)
	defer cancel()
	view, err := s.Machine.Wait(wait, req.After)
	if err == nil || ctx.Err() != nil {
		return view, err
	}
	// The index may also have been taken back, by the restore of a backup.
	return s.Read(ctx)
}

// sameWork reports whether two views say the same of a node's attempts. A
// record that is another one is at another place.
func sameWork(a, b []compute.Work) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Attempt != b[i].Attempt || a[i].Execution != b[i].Execution {
			return false
		}
	}
	return true
}

// workFor returns the work of a worker with no more than it needs.
func workFor(view *fsm.View, id compute.NodeID) []workItem {
	work := view.Work(id)
	out := make([]workItem, len(work))
	for i, w := range work {
		out[i] = workItem{Attempt: w.Attempt, Execution: forWorker(w), GPUs: w.GPUs}
	}
	return out
}

// forWorker returns the part of an execution that a worker needs to execute it. It
// leaves out the user, the price and the callbacks, and the code once it was
// started.
func forWorker(w compute.Work) *compute.Execution {
	e := w.Execution
	out := &compute.Execution{
		ID: e.ID, Org: e.Org, Kind: e.Kind, Status: e.Status, Profile: e.Profile, Request: e.Request, Bundle: e.Bundle,
		FileName: e.FileName, Timeout: e.Timeout, DisconnectGrace: e.DisconnectGrace, Network: e.Network,
		Epoch: e.Epoch, Stop: e.Stop, StopGrace: e.PaidGrace(), Preemptible: e.Preemptible,
		ExecletAt: e.ExecletAt, StartedAt: e.StartedAt,
		Volumes: e.Volumes, ScratchMiB: e.ScratchMiB, ScratchMemory: e.ScratchMemory,
		Environment: e.Environment,
		MaxRetries:  e.MaxRetries, Retries: e.Retries, // Its lease depends on them.
		Storage: e.Storage, Inference: e.Inference,
		Files: e.Files, Container: e.Container, Serving: e.Serving, CreditsEnd: e.CreditsEnd,
		OutputsPrefix: e.OutputsPrefix, Repeat: e.Repeat,
	}
	if e.Inference != nil {
		out.Parent = e.Parent // By which its engine is asked.
	}
	if w.Attempt.Started {
		out.Bundle.Inline = nil
	}
	return out
}

// digestOf returns a digest by which answers are compared.
func digestOf(codec rpc.Codec, work []workItem) compute.Hash {
	return sha256.Sum256(codec.Marshal(work))
}

// serveStart proposes the report of a worker that code started.
func (s *Server) serveStart(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var start compute.AttemptStart
	if err := rpc.NewCodec().Unmarshal(data, &start); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The report cannot be read: %w", err)
	}
	return nil, ReplicaReporter{peer.ID, s.Propose}.StartAttempt(ctx, start)
}

// serveFinish proposes the report of a worker on how an attempt ended.
func (s *Server) serveFinish(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var outcome compute.Outcome
	if err := rpc.NewCodec().Unmarshal(data, &outcome); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The report cannot be read: %w", err)
	}
	return nil, ReplicaReporter{peer.ID, s.Propose}.FinishAttempt(ctx, outcome)
}

// serveReady proposes the report of a worker on whether code is ready.
func (s *Server) serveReady(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var readiness compute.Readiness
	if err := rpc.NewCodec().Unmarshal(data, &readiness); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The report cannot be read: %w", err)
	}
	return nil, ReplicaReporter{peer.ID, s.Propose}.SetReady(ctx, readiness)
}

// serveBundle gives a worker what one of its live attempts executes.
func (s *Server) serveBundle(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if len(data) != len(compute.Hash{}) {
		return nil, compute.Errorf(compute.CodeInvalid, "Not the hash of a bundle.")
	}
	hash := compute.Hash(data)
	if !needs(s.Machine.View(), peer.ID, hash) {
		view, err := s.Read(ctx)
		if err != nil {
			return nil, err
		}
		if !needs(view, peer.ID, hash) {
			return nil, compute.Errorf(compute.CodeNotFound, "No live attempt of this node executes that.")
		}
	}
	return s.Blob(ctx, hash)
}

// needs reports whether a live attempt of the node executes the bundle.
func needs(view *fsm.View, id compute.NodeID, bundle compute.Hash) bool {
	for _, w := range view.Work(id) {
		if w.Execution.Bundle.Hash == bundle {
			return true
		}
	}
	return false
}

// serveAnnounce keeps the record of a worker right, as announce does a
// server's own.
func (s *Server) serveAnnounce(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var said compute.Node
	if err := rpc.NewCodec().Unmarshal(data, &said); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The announcement cannot be read: %w", err)
	}
	said.ID, said.Role = peer.ID, peer.Role
	if err := cluster.CheckNode(&said); err != nil {
		return nil, err
	}
	if known, ok := s.Machine.View().Node(peer.ID); ok && SameIdentity(known, &said) {
		return nil, nil
	}
	_, _, err := s.Propose(ctx, command.RegisterNode{Node: said})
	return nil, err
}

// SameIdentity reports whether a record agrees with the node's description of
// itself.
func SameIdentity(a, b *compute.Node) bool {
	return a.Name == b.Name && a.API == b.API && a.RPC == b.RPC &&
		a.Gossip == b.Gossip && a.Metrics == b.Metrics && a.Version == b.Version &&
		a.Format == b.Format
}
