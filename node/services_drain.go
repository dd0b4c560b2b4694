package node

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
)

// methodDrainReplica is the call by which the node of a replica that is to stop has a
// server send it no more requests, and learns how many are under way.
const methodDrainReplica = "services.drain"

// drainTimeout is for a server to answer it.
const drainTimeout = 2 * time.Second

// serveDrains answers the nodes of replicas.
func (n *Node) serveDrains() {
	n.cluster.Handle(methodDrainReplica, cluster.Servers|cluster.Workers,
		func(_ context.Context, peer rpc.Peer, req []byte) ([]byte, error) {
			if len(req) != len(compute.UUID{}) {
				return nil, compute.Errorf(compute.CodeInvalid, "Not the id of a replica.")
			}
			replica := compute.ExecutionID{UUID: compute.UUID(req)}
			view := n.machine.View()
			attempts := view.Attempts(replica)
			if len(attempts) == 0 || attempts[len(attempts)-1].Node != peer.ID {
				return nil, compute.Errorf(compute.CodeForbidden, "The replica is not on the node that asks.")
			}
			if e, ok := view.AnyExecution(replica); !ok || e.Stop == compute.StopNone {
				// Nor does this view have what takes its place.
				return nil, compute.Errorf(compute.CodeUnavailable, "This node does not know yet that the replica stops.")
			}
			return binary.BigEndian.AppendUint32(nil, uint32(n.routes.Drain(replica))), nil
		})
}

// drainReplica has all servers send no more requests to a replica on this node, and
// returns how many are under way. It implements executor.Requests.
func (n *Node) drainReplica(ctx context.Context, replica compute.ExecutionID) (underWay int, known bool) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var (
		mu    sync.Mutex
		group sync.WaitGroup
	)
	known = true
	count := func(requests int, answered bool) {
		mu.Lock()
		defer mu.Unlock()
		underWay += requests
		known = known && answered
	}
	for _, server := range n.cluster.Servers() {
		if server.ID == n.cluster.ID() {
			count(n.routes.Drain(replica), true)
			continue
		}
		group.Go(func() {
			answer, err := n.cluster.Call(ctx, server.ID, methodDrainReplica, replica.UUID[:])
			if answered := err == nil && len(answer) == 4; answered {
				count(int(binary.BigEndian.Uint32(answer)), true)
			} else {
				count(0, false)
			}
		})
	}
	group.Wait()
	return underWay, known
}
