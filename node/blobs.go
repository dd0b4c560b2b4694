package node

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"berth/cluster"
	"berth/cluster/replica"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/node/storage"
)

// methodBlobs is the stream by which nodes keep one another's blobs.
const methodBlobs = "storage.blobs"

// Times of the mark and sweep of blobs.
const (
	sweepPeriod = time.Hour
	sweepMinAge = time.Hour // A younger blob may belong to a submit that is on its way.
)

// blobPeers opens blob streams to other nodes.
type blobPeers struct{ node *Node }

// Open has another node serve a request about a blob.
func (p blobPeers) Open(ctx context.Context, id compute.NodeID, req []byte) (io.ReadWriteCloser, error) {
	_, stream, err := p.node.cluster.Open(ctx, id, methodBlobs, req)
	return stream, err
}

// openBlobs opens this node's blob store and its view of the others'.
func (n *Node) openBlobs(context.Context) error {
	store, err := storage.Open(n.cfg.DataDir, n.cluster.Clock().Now)
	if err != nil {
		return fmt.Errorf("open blobs: %w", err)
	}
	n.blobs = storage.New(storage.Config{
		Self: n.cluster.ID(), Store: store, Peers: blobPeers{n}, Nodes: n.blobNodes,
		Replicas: n.cfg.Storage.Replicas, Logger: n.logger, Metrics: n.registry,
	})
	n.archives, n.keeper = newArchives(n), newKeeper(n)
	n.cluster.Handle(methodLacking, cluster.Servers, n.serveLacking)
	n.cluster.HandleStream(methodBlobs, cluster.Servers, func(
		ctx context.Context, _ rpc.Peer, req []byte, stream *rpc.Stream,
	) error {
		if err := stream.Accept(nil); err != nil {
			return err
		}
		return n.blobs.Serve(ctx, req, stream)
	})
	return nil
}

// blobNodes returns the nodes that keep blobs: the servers. One that is drained
// may soon be removed.
func (n *Node) blobNodes() []storage.Node { return blobNodes(n.machine.View()) }

func blobNodes(view *fsm.View) []storage.Node {
	var nodes []storage.Node
	for node := range view.Nodes() {
		if node.Role != compute.RoleServer {
			continue
		}
		nodes = append(nodes, storage.Node{ID: node.ID, Up: node.State == compute.NodeUp, Leaving: node.Drained})
	}
	return nodes
}

// sweepBlobs removes, now and then, the blobs that nothing refers to.
func (n *Node) sweepBlobs(ctx context.Context) error {
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		n.SweepBlobs(ctx, sweepMinAge)
	}
}

// SweepBlobs removes from this disk the blobs older than minAge that a view
// which is surely new does not know. What fails is logged: the next sweep
// comes.
func (n *Node) SweepBlobs(ctx context.Context, minAge time.Duration) {
	view, err := reader{n.machine, n.cluster}.Read(ctx)
	if err != nil {
		n.logger.Warn("blobs not swept", "err", err)
		return
	}
	used := usedBlobs(view)
	removed, err := n.blobs.Sweep(func(h compute.Hash) bool { return used[h] }, minAge)
	if err != nil {
		n.logger.Warn("blobs not swept", "err", err)
		return
	}
	n.logger.Debug("blobs swept", "attempt", removed)
}

// scrubBlobs reads the blobs on this disk against their names, as often as the
// replica is.
func (n *Node) scrubBlobs(ctx context.Context) error {
	period := n.cfg.Storage.ScrubEvery
	if period <= 0 {
		return nil
	}
	for loop.Sleep(ctx, period-period/10+rand.N(period/5)) {
		start := time.Now() //nolint:forbidigo // A stopwatch.
		limit := rate.NewLimiter(replica.ScrubRate, storage.MaxBlob)
		_, _, err := n.blobs.Scrub(ctx, func(bytes int) error { return limit.WaitN(ctx, min(bytes, limit.Burst())) })
		if err != nil {
			n.logger.Error("blobs not scrubbed", "err", err)
			continue
		}
		n.logger.Info("blobs scrubbed", "took", time.Since(start).Round(time.Millisecond))
	}
	return nil
}

// usedBlobs returns the blobs that executions refer to, and those of archives.
func usedBlobs(view *fsm.View) map[compute.Hash]bool {
	used := map[compute.Hash]bool{}
	for hash := range view.Bundles() {
		used[hash] = true
	}
	for a := range view.Archives() {
		used[a.Blob] = true
	}
	return used
}

// bundles reads what executions execute.
type bundles struct{ blobs *storage.Blobs }

// Bundle returns the bundle behind a reference.
func (b bundles) Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	data := ref.Inline
	if len(data) == 0 {
		var err error
		if data, err = b.blobs.Get(ctx, ref.Hash); err != nil {
			return nil, err
		}
	}
	return compute.DecodeBundle(data)
}
