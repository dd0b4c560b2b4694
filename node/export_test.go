package node

import (
	"berth/cluster"
	"berth/node/executor"
)

// Cluster returns the node's place in the cluster.
func (n *Node) Cluster() *cluster.Cluster { return n.cluster }

// Assignments is where a worker has its work from.
type Assignments = executor.Source

// Reporter is where a worker's words go.
type Reporter = executor.Reporter

// NewAssignments returns the work of the worker that c is.
func NewAssignments(c *cluster.Cluster) Assignments { return newAssignments(c) }

// NewReporter returns what takes the words of the worker that c is to a server.
func NewReporter(c *cluster.Cluster) Reporter { return remoteReporter{c} }
