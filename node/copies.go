package node

import (
	"context"
	"io"
	"sync"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/logs/copies"
)

// methodCopies is the stream by which nodes push copies of output to one another.
const methodCopies = "logs.copy"

// mayHaveCopies is how many nodes are asked to delete copies: those that are chosen for
// them first. Other nodes got copies only while these were down, and delete them by age.
const mayHaveCopies = 8

// outputCopying copies the output of executions between nodes.
type outputCopying struct{ node *Node }

// open opens the store of other nodes' output, and the sender of this node's.
func (o outputCopying) open(from cluster.Callers) {
	o.node.outputCopies = copies.Open(o.node.cfg.DataDir, o.node.logs,
		copies.Limits{
			Age: o.node.cfg.Output.Age, Bytes: o.node.cfg.Output.SizeMiB << 20, Archive: outputArchive(o).keepCopy,
		}, o.node.opts.Now)
	o.node.outputSender = copies.NewSender(copies.Config{
		DataDir: o.node.cfg.DataDir, Nodes: o.targets, Now: o.node.opts.Now, Logger: o.node.logger,
		Live: func(id compute.ExecutionID, epoch uint64) bool { return o.node.executor.MayPrint(id, epoch) },
		Open: func(ctx context.Context, id compute.NodeID) (io.ReadWriteCloser, error) {
			_, stream, err := o.node.cluster.Open(ctx, id, methodCopies, nil)
			return stream, err
		},
	})
	o.node.cluster.HandleStream(methodCopies, from, func(
		ctx context.Context, peer rpc.Peer, _ []byte, stream *rpc.Stream,
	) error {
		if err := stream.Accept(nil); err != nil {
			return err
		}
		return o.node.outputCopies.Serve(ctx, peer.ID, stream)
	})
}

// run copies output, and removes old copies, until ctx ends.
func (o outputCopying) run(ctx context.Context) error {
	var prune sync.WaitGroup
	defer prune.Wait()
	prune.Go(func() {
		o.node.outputCopies.Run(ctx, func(err error) { o.node.logger.Warn("copies of output not pruned", "err", err) })
	})
	return o.node.outputSender.Run(ctx)
}

// targets returns the nodes that may get copies of this node's output now: the other
// servers that are up, else the workers, which only servers may call.
func (o outputCopying) targets() []compute.NodeID {
	if o.node.isWorker() {
		return o.serversAlive()
	}
	servers, workers := o.up()
	if len(servers) > 0 {
		return servers
	}
	return workers
}

// serversAlive returns the servers that a worker knows, without those that gossip has
// lost.
func (o outputCopying) serversAlive() (ids []compute.NodeID) {
	lost := make(map[compute.NodeID]bool)
	for _, m := range o.node.cluster.Gossip().Members() {
		lost[m.ID] = !m.Alive
	}
	for _, s := range o.node.cluster.Servers() {
		if !lost[s.ID] {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// up returns the other nodes that are up, by their roles.
func (o outputCopying) up() (servers, workers []compute.NodeID) {
	for node := range o.node.machine.View().Nodes() {
		switch {
		case node.ID == o.node.cluster.ID() || node.State != compute.NodeUp:
		case node.Role == compute.RoleServer:
			servers = append(servers, node.ID)
		default:
			workers = append(workers, node.ID)
		}
	}
	return servers, workers
}

// holders returns the nodes that are up and may have copies of an execution's output,
// the likeliest first.
func (o outputCopying) holders(id compute.ExecutionID) []compute.NodeID {
	servers, workers := o.up()
	servers = copies.Order(id, append(servers, o.node.cluster.ID()))
	return append(servers, copies.Order(id, workers)...)
}
