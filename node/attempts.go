package node

import (
	"context"
	"crypto/sha256"
	"time"

	"berth/attempt"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
)

// The methods by which a worker lives its attempts. Whose they are, its
// certificate says; what it sends of other nodes' attempts is refused.
const (
	methodPoll     = "attempts.poll"
	methodStart    = "attempts.start"
	methodFinish   = "attempts.finish"
	methodBundle   = "attempts.bundle"
	methodAnnounce = "nodes.announce"
)

// Times of a poll.
const (
	pollHold   = 10 * time.Second       // How long one is held while nothing changes.
	pollMargin = 2 * time.Second        // Of the hold, for the answer to travel.
	pollBehind = time.Second            // How long a server waits for its replica to be where the worker has been.
	pollBatch  = 2 * time.Millisecond   // Between two looks at a busy state.
	askEach    = 10 * time.Second       // One server's time for a report.
	askBundle  = 20 * time.Second       // The same for a bundle, which may be on another node.
	announceIn = 500 * time.Millisecond // Between tries to be known.
)

// pollRequest asks for the attempts of the worker that sends it.
type pollRequest struct {
	After  uint64       `cbor:"1,keyasint,omitempty"` // Newest index that it knows: no answer is of an older state.
	Digest compute.Hash `cbor:"2,keyasint"`           // Of the work that it has; zero for none yet.
	Fresh  bool         `cbor:"3,keyasint,omitempty"` // The answer must hold all that was acknowledged before.
}

// pollAnswer is all the work of a worker, whatever it had before: a lost
// answer loses nothing.
type pollAnswer struct {
	Work   []workItem   `cbor:"1,keyasint,omitempty"`
	Index  uint64       `cbor:"2,keyasint"`
	Digest compute.Hash `cbor:"3,keyasint"`
	Life   uint64       `cbor:"4,keyasint,omitempty"` // The epoch of the cluster in the state.
}

// workItem is one compute.Work as it travels.
type workItem struct {
	Attempt   *compute.Attempt   `cbor:"1,keyasint"`
	Execution *compute.Execution `cbor:"2,keyasint"`
	GPUs      []compute.GPU      `cbor:"3,keyasint,omitempty"`
}

// serveWorkers answers the workers of the cluster.
func (n *Node) serveWorkers() {
	n.cluster.Handle(methodPoll, cluster.Workers, n.servePoll)
	n.cluster.Handle(methodStart, cluster.Workers, n.serveStart)
	n.cluster.Handle(methodFinish, cluster.Workers, n.serveFinish)
	n.cluster.Handle(methodBundle, cluster.Workers, n.serveBundle)
	n.cluster.Handle(methodAnnounce, cluster.Workers, n.serveAnnounce)
}

// servePoll answers once the work of the worker is another than it has, or
// when it was held for long enough.
func (n *Node) servePoll(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	codec := rpc.NewCodec()
	var req pollRequest
	if err := codec.Unmarshal(data, &req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The poll cannot be read: %w", err)
	}
	view, err := n.pollView(ctx, req)
	if err != nil {
		return nil, err
	}
	if view.ClusterEpoch() < n.cluster.Epoch() {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"The new life of the cluster has not begun in this server's state.").Retry(time.Second)
	}
	held, cancel := context.WithTimeout(ctx, pollHold)
	defer cancel()
	work := workFor(view, peer.ID)
	digest := digestOf(codec, work)
	for digest == req.Digest {
		next, err := n.machine.Wait(held, view.Index()+1)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			break // Held for long enough.
		}
		if next.ClusterEpoch() != view.ClusterEpoch() {
			view = next
			break // What it has of the life before must end at once.
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

// pollView returns a view that is not older than the worker's knowledge: what
// it began at another server's word must not look as if it were not there.
func (n *Node) pollView(ctx context.Context, req pollRequest) (*fsm.View, error) {
	if req.Fresh || n.cluster.LastContact() > attempt.NodeTTL {
		return reader{n.machine, n.cluster}.Read(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, pollBehind)
	defer cancel()
	view, err := n.machine.Wait(wait, req.After)
	if err == nil || ctx.Err() != nil {
		return view, err
	}
	// The index may also have been taken back, by the restore of a backup.
	return reader{n.machine, n.cluster}.Read(ctx)
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

// forWorker returns what a worker is told of an execution: what executing it
// takes, and nothing of whose it is, what it costs or whom it calls back. Its
// code is left out once it was started.
func forWorker(w compute.Work) *compute.Execution {
	e := w.Execution
	out := &compute.Execution{
		ID: e.ID, Kind: e.Kind, Status: e.Status, Profile: e.Profile, Request: e.Request, Bundle: e.Bundle,
		FileName: e.FileName, Timeout: e.Timeout, DisconnectGrace: e.DisconnectGrace, Network: e.Network,
		Epoch: e.Epoch, Stop: e.Stop, StopGrace: e.StopGrace, Preemptible: e.Preemptible,
		ExecletAt: e.ExecletAt, StartedAt: e.StartedAt,
		MaxRetries: e.MaxRetries, Retries: e.Retries, // Its lease depends on them.
	}
	if w.Attempt.Started {
		out.Bundle.Inline = nil
	}
	return out
}

// digestOf tells one answer from another.
func digestOf(codec rpc.Codec, work []workItem) compute.Hash {
	return sha256.Sum256(codec.Marshal(work))
}

// serveStart takes a worker's word that code started.
func (n *Node) serveStart(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var start compute.AttemptStart
	if err := rpc.NewCodec().Unmarshal(data, &start); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The report cannot be read: %w", err)
	}
	return nil, reporter{n.proposer(), peer.ID}.StartAttempt(ctx, start)
}

// serveFinish takes a worker's word on how an attempt ended.
func (n *Node) serveFinish(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var outcome compute.Outcome
	if err := rpc.NewCodec().Unmarshal(data, &outcome); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The report cannot be read: %w", err)
	}
	return nil, reporter{n.proposer(), peer.ID}.FinishAttempt(ctx, outcome)
}

// serveBundle gives a worker what one of its live attempts executes.
func (n *Node) serveBundle(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if len(data) != len(compute.Hash{}) {
		return nil, compute.Errorf(compute.CodeInvalid, "Not the hash of a bundle.")
	}
	hash := compute.Hash(data)
	if !needs(n.machine.View(), peer.ID, hash) {
		view, err := reader{n.machine, n.cluster}.Read(ctx)
		if err != nil {
			return nil, err
		}
		if !needs(view, peer.ID, hash) {
			return nil, compute.Errorf(compute.CodeNotFound, "No live attempt of this node executes that.")
		}
	}
	return n.blobs.Get(ctx, hash)
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
func (n *Node) serveAnnounce(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var said compute.Node
	if err := rpc.NewCodec().Unmarshal(data, &said); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The announcement cannot be read: %w", err)
	}
	said.ID, said.Role = peer.ID, peer.Role
	if err := cluster.CheckNode(&said); err != nil {
		return nil, err
	}
	if known, ok := n.machine.View().Node(peer.ID); ok && sameIdentity(known, &said) {
		return nil, nil
	}
	_, err := n.proposer().do(ctx, fsm.RegisterNode{Node: said})
	return nil, err
}
