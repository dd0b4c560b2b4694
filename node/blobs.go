package node

import (
	"context"
	"errors"
	"fmt"
	"io"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/archives"
	"berth/node/replication"
	"berth/node/storage"
	"berth/node/trees"
)

// methodBlobs is the stream by which nodes keep one another's blobs.
const methodBlobs = "storage.blobs"

// methodBlob is the call by which a server puts a small blob on another.
const methodBlob = "storage.blob"

// blobPeers opens blob streams to other nodes.
type blobPeers struct{ node *Node }

// Open has another node serve a request about a blob.
func (p blobPeers) Open(ctx context.Context, id compute.NodeID, req []byte) (io.ReadWriteCloser, error) {
	_, stream, err := p.node.cluster.Open(ctx, id, methodBlobs, req)
	return stream, err
}

// message has another node serve the message of a blob.
func (p blobPeers) message(ctx context.Context, id compute.NodeID, message []byte) error {
	_, err := p.node.cluster.Call(ctx, id, methodBlob, message)
	if e, coded := errors.AsType[*compute.Error](err); coded && e.Detail == rpc.NoMethod {
		return storage.ErrNotShort
	}
	return err
}

// openBlobs opens this node's blob store and its view of the others'.
func (n *Node) openBlobs(ctx context.Context) error {
	store, err := storage.Open(n.cfg.DataDir, n.cluster.Clock().Now)
	if err != nil {
		return fmt.Errorf("open blobs: %w", err)
	}
	n.onClose(store.Close)
	n.blobs = storage.New(storage.Config{
		Self: n.cluster.ID(), Store: store, Peers: blobPeers{n}, Message: blobPeers{n}.message, Mirror: n.remote.mirrored,
		Nodes:    func() []storage.Node { return replication.Nodes(n.machine.View()) },
		Replicas: n.cfg.Storage.Replicas, Logger: n.logger, Metrics: n.registry,
	})
	n.archives = archives.NewCache(n.blobs.Get)
	n.trees = trees.New(n.blobs.Get)
	n.onClose(n.archives.Close)
	if err := n.openObjects(ctx); err != nil {
		return err
	}
	n.repairer = replication.NewRepairer(
		n.machine.View, n.blobs, n.trees, diskObjects{n}, n.opts.Now, n.logger, n.registry)
	n.housekeeper = &replication.Housekeeper{
		Read: n.reader().Read, Blobs: n.blobs, Trees: n.trees, Objects: diskObjects{n},
		Repairer: n.repairer, ScrubEvery: n.cfg.Storage.ScrubEvery, Logger: n.logger,
	}
	n.copies = &replication.Copies{
		Cluster: n.cluster, Machine: n.machine, Read: n.reader().Read, Repairer: n.repairer, Logger: n.logger,
	}
	n.copies.Handle()
	n.cluster.Handle(methodBlob, cluster.Servers, func(ctx context.Context, _ rpc.Peer, req []byte) ([]byte, error) {
		return nil, n.blobs.ServeMessage(ctx, req)
	})
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

// repairBlobs brings, until ctx ends, the blobs that this server must have.
func (n *Node) repairBlobs(ctx context.Context) error {
	// The blobs that the state refers to are known once it was read from the others.
	if _, err := n.reader().Read(ctx); err != nil {
		n.logger.Debug("blob repair delayed", "err", err)
	}
	n.repairer.Run(ctx)
	return nil
}

// spreadArchive makes a blob durable on as many servers as can take it, which
// have to be most of them.
func (n *Node) spreadArchive(ctx context.Context, data []byte) error {
	_, err := n.blobs.Spread(ctx, data, len(replication.Nodes(n.machine.View()))/2+1)
	return err
}
