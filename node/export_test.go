package node

import (
	"context"
	"errors"

	"berth/cluster"
)

// Cluster returns the node's place in the cluster.
func (n *Node) Cluster() *cluster.Cluster { return n.cluster }

// PruneOutput removes the output that this node need not keep, its own and copies.
func (n *Node) PruneOutput(ctx context.Context) error {
	return errors.Join(n.executor.Prune(ctx), n.outputCopies.Prune(ctx))
}
