package node

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
	"berth/node/executor"
)

// methodDrainReplica is the call by which the node of a replica that is to stop has a
// server send it no more requests, and learns how many are under way.
const methodDrainReplica = "services.drain"

// drainOver follows the number of requests in the answer if the deadline of the drain of
// the replica's node has passed.
const drainOver = 1

// drainSkew is how far the clock of a server may be ahead without a replica being stopped
// too early.
const drainSkew = 2 * time.Second

// drainTimeout is for a server to answer it.
const drainTimeout = 2 * time.Second

// serveDrains answers the nodes of replicas.
func (p servicePorts) serveDrains() {
	p.node.cluster.Handle(methodDrainReplica, cluster.Servers|cluster.Workers,
		func(_ context.Context, peer rpc.Peer, req []byte) ([]byte, error) {
			if len(req) != len(compute.UUID{}) {
				return nil, compute.Errorf(compute.CodeInvalid, "Not the id of a replica.")
			}
			replica := compute.ExecutionID{UUID: compute.UUID(req)}
			view := p.node.machine.View()
			attempts := view.Attempts(replica)
			if len(attempts) == 0 || attempts[len(attempts)-1].Node != peer.ID {
				return nil, compute.Errorf(compute.CodeForbidden, "The replica is not on the node that asks.")
			}
			if e, ok := view.AnyExecution(replica); !ok || e.Stop == compute.StopNone {
				// Nor does this view have what takes its place.
				return nil, compute.Errorf(compute.CodeUnavailable, "This node does not know yet that the replica stops.")
			}
			answer := binary.BigEndian.AppendUint32(nil, uint32(p.node.routes.Drain(replica)))
			if p.drainIsOver(view, peer.ID) {
				answer = append(answer, drainOver)
			}
			return answer, nil
		})
}

// drainIsOver reports whether the deadline of a node's drain has passed, by the state's time
// or well past by this server's.
func (p servicePorts) drainIsOver(view *fsm.View, id compute.NodeID) bool {
	return view.DrainOver(id, max(view.Now(), compute.InstantOf(p.node.opts.Now().Add(-drainSkew))))
}

// drain stops all servers from sending requests to a replica on this node, and
// returns those under way. It implements executor.Requests.
func (p servicePorts) drain(ctx context.Context, replica compute.ExecutionID) executor.UnderWay {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var (
		mu    sync.Mutex
		group sync.WaitGroup
		all   = executor.UnderWay{Known: true}
	)
	add := func(one executor.UnderWay) {
		mu.Lock()
		defer mu.Unlock()
		all.Count += one.Count
		all.Known = all.Known && one.Known
		all.Over = all.Over || one.Over
	}
	for _, server := range p.node.cluster.Servers() {
		if server.ID == p.node.cluster.ID() {
			over := p.drainIsOver(p.node.machine.View(), server.ID)
			add(executor.UnderWay{Count: p.node.routes.Drain(replica), Known: true, Over: over})
			continue
		}
		group.Go(func() { add(p.drainAt(ctx, server.ID, replica)) })
	}
	group.Wait()
	return all
}

// drainAt has another server send no more requests to a replica on this node.
func (p servicePorts) drainAt(
	ctx context.Context, server compute.NodeID, replica compute.ExecutionID,
) executor.UnderWay {
	answer, err := p.node.cluster.Call(ctx, server, methodDrainReplica, replica.UUID[:])
	if err != nil || len(answer) < 4 {
		return executor.UnderWay{}
	}
	return executor.UnderWay{
		Count: int(binary.BigEndian.Uint32(answer)), Known: true, Over: len(answer) > 4 && answer[4] == drainOver,
	}
}
