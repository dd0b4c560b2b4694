package node

import (
	"context"
	"errors"
	"maps"
	"net"

	"berth/cluster"
	"berth/compute"
	"berth/node/inference/autoscale"
	"berth/node/router"
)

// Cluster returns the node's place in the cluster.
func (n *Node) Cluster() *cluster.Cluster { return n.cluster }

// PruneOutput removes the output that this node need not keep, its own and copies.
func (n *Node) PruneOutput(ctx context.Context) error {
	return errors.Join(n.executor.Prune(ctx), n.outputCopies.Prune(ctx))
}

// Hops returns the connections to replicas on other nodes that this node has, by node.
func (n *Node) Hops() map[compute.NodeID]int {
	n.dials.mu.Lock()
	defer n.dials.mu.Unlock()
	return maps.Clone(n.dials.open)
}

// CountsOf returns the counts of all servers together for a deployment, as a leader scales by
// them, and whether all servers answered.
func (n *Node) CountsOf(ctx context.Context, id compute.ExecutionID) (autoscale.Counts, bool) {
	all, ok := modelLoads{n}.ask(ctx, n.machine.View())
	return all[id], ok
}

// DialReplica connects to a replica as the node's router does.
func (n *Node) DialReplica(ctx context.Context, to router.Replica) (net.Conn, error) {
	return servicePorts{n}.dial(ctx, to)
}
