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
// them first. What others have, from when these were down, goes with its age.
const mayHaveCopies = 8

// openCopies opens the copies of other nodes' output, and what copies this node's.
func (n *Node) openCopies(from cluster.Callers) {
	n.outputCopies = copies.Open(n.cfg.DataDir, n.logs,
		copies.Limits{Age: n.cfg.Output.Age, Bytes: n.cfg.Output.SizeMiB << 20}, n.opts.Now)
	n.outputSender = copies.NewSender(copies.Config{
		DataDir: n.cfg.DataDir, Nodes: n.copyTargets, Now: n.opts.Now, Logger: n.logger,
		Live: func(id compute.ExecutionID, epoch uint64) bool { return n.executor.MayPrint(id, epoch) },
		Open: func(ctx context.Context, id compute.NodeID) (io.ReadWriteCloser, error) {
			_, stream, err := n.cluster.Open(ctx, id, methodCopies, nil)
			return stream, err
		},
	})
	n.cluster.HandleStream(methodCopies, from, func(
		ctx context.Context, peer rpc.Peer, _ []byte, stream *rpc.Stream,
	) error {
		if err := stream.Accept(nil); err != nil {
			return err
		}
		return n.outputCopies.Serve(ctx, peer.ID, stream)
	})
}

// copyOutput copies output, and removes old copies, until ctx ends.
func (n *Node) copyOutput(ctx context.Context) error {
	var prune sync.WaitGroup
	defer prune.Wait()
	prune.Go(func() {
		n.outputCopies.Run(ctx, func(err error) { n.logger.Warn("copies of output not pruned", "err", err) })
	})
	return n.outputSender.Run(ctx)
}

// copyTargets returns the nodes that may get copies of this node's output now: the other
// servers that are up, else the workers, which only servers may call.
func (n *Node) copyTargets() []compute.NodeID {
	if n.isWorker() {
		return n.serversAlive()
	}
	servers, workers := n.up()
	if len(servers) > 0 {
		return servers
	}
	return workers
}

// serversAlive returns the servers that a worker knows, without those that gossip has
// lost.
func (n *Node) serversAlive() (ids []compute.NodeID) {
	lost := make(map[compute.NodeID]bool)
	for _, m := range n.cluster.Gossip().Members() {
		lost[m.ID] = !m.Alive
	}
	for _, s := range n.cluster.Servers() {
		if !lost[s.ID] {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// up returns the other nodes that are up, by their roles.
func (n *Node) up() (servers, workers []compute.NodeID) {
	for node := range n.machine.View().Nodes() {
		switch {
		case node.ID == n.cluster.ID() || node.State != compute.NodeUp:
		case node.Role == compute.RoleServer:
			servers = append(servers, node.ID)
		default:
			workers = append(workers, node.ID)
		}
	}
	return servers, workers
}

// copyHolders returns the nodes that are up and may have copies of an execution's output,
// the likeliest first.
func (n *Node) copyHolders(id compute.ExecutionID) []compute.NodeID {
	servers, workers := n.up()
	servers = copies.Order(id, append(servers, n.cluster.ID()))
	return append(servers, copies.Order(id, workers)...)
}
