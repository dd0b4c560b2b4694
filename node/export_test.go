package node

import (
	"berth/cluster"
)

// Cluster returns the node's place in the cluster.
func (n *Node) Cluster() *cluster.Cluster { return n.cluster }
