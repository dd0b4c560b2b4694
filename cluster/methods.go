package cluster

import (
	"maps"
	"slices"

	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
)

// Callers is a set of kinds of nodes that may call a method. All others are
// refused.
type Callers uint8

// The kinds of callers. A server is trusted with the whole state. A worker is
// trusted with the data of its own attempts, which each method checks. A node
// without a certificate may only ask for one.
const (
	Servers Callers = 1 << iota
	Workers
	Strangers
)

// callersOf returns the set that a peer is in.
func callersOf(peer rpc.Peer) Callers {
	switch {
	case peer.Anonymous():
		return Strangers
	case peer.Role == compute.RoleServer:
		return Servers
	case peer.Role == compute.RoleWorker:
		return Workers
	}
	return 0
}

// The methods that this package serves.
const (
	methodJoin      = "cluster.join"
	methodPropose   = "cluster.propose"
	methodReadIndex = "cluster.read_index"
	methodStatus    = "cluster.status"
	methodHeartbeat = "cluster.heartbeat"
	methodInventory = "cluster.inventory"
	methodRenew     = "cluster.renew"
	methodServers   = "cluster.servers"
	methodTransfer  = "cluster.transfer"
	methodRejoin    = "cluster.rejoin"
	methodProbe     = "cluster.probe"
	methodMarks     = "cluster.marks"
	methodDiverged  = "cluster.diverged"
	methodHealth    = "cluster.health"
)

// handleOwn registers the methods of this package. A worker serves only its
// inventory.
func (c *Cluster) handleOwn() {
	c.Handle(methodInventory, Servers, c.gossip.HandleInventory)
	if c.isWorker() {
		return
	}
	c.Handle(methodJoin, Servers|Strangers, c.joiner.handleJoin)
	c.Handle(methodPropose, Servers, c.proposer.handlePropose)
	c.Handle(methodReadIndex, Servers, c.reader.handleReadIndex)
	c.Handle(methodStatus, Servers|Workers, c.healthReport.handleStatus) // Workers search for the leader.
	c.Handle(methodTransfer, Servers, c.transfers.handleTransfer)
	c.Handle(methodRejoin, Servers, c.rejoiner.handleRejoin)
	c.Handle(methodProbe, Servers, c.hungDisk.handleProbe)
	c.Handle(methodHealth, Servers, c.healthReport.handleHealth)
	c.Handle(methodHeartbeat, Servers|Workers, c.heartbeats.handle)
	c.Handle(methodRenew, Workers, c.identity.handleRenew)
	c.Handle(methodServers, Workers, c.workerCalls.handleServers)
}

// Handle makes h answer calls of a method by the callers in may. Register before
// Run; a method has one handler.
func (c *Cluster) Handle(method string, may Callers, h rpc.Handler) {
	c.callers[method] = may
	c.server.Handle(method, h)
}

// HandleStream makes h answer calls of a stream method by the callers in may.
// Register before Run; a method has one handler.
func (c *Cluster) HandleStream(method string, may Callers, h rpc.StreamHandler) {
	c.callers[method] = may
	c.server.HandleStream(method, h)
}

// Methods returns the allowed callers of each method that this node serves.
func (c *Cluster) Methods() map[string]Callers { return maps.Clone(c.callers) }

// allow authorizes each call: a connection may be older than the removal of its
// node.
func (c port) allow(peer rpc.Peer, method string) error {
	may := c.callers[method]&callersOf(peer) != 0
	switch {
	case peer.Anonymous() && !may:
		return compute.Errorf(compute.CodeUnauthenticated, "Without a certificate only %s may be called.", methodJoin)
	case !peer.Anonymous() && c.removed(peer.ID) && (!slices.Contains(voterMethods(), method) || !c.votes(peer.ID)):
		return transport.ErrRemoved()
	case !may:
		return compute.Errorf(compute.CodeForbidden, "A node of role %s may not call %s.", peer.Role, method)
	}
	return nil
}
