package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"berth/boottime"
	"berth/cluster/datadir"
	"berth/cluster/raftconf"
	"berth/compute"
)

// avoidFor is how long a server that did not answer is asked last.
const avoidFor = 10 * time.Second

// errServerLost ends the calls to a server that gossip has lost.
var errServerLost = errors.New("gossip has lost the server")

// upstream is a worker's knowledge of the servers. Their addresses are in the node
// record, reported by one of them. The worker learns the leader and the last server that
// answered from calls.
type upstream struct {
	c *Cluster

	mu     sync.Mutex
	leader compute.NodeID
	last   compute.NodeID                   // Answered last.
	failed map[compute.NodeID]time.Duration // Boottime when a server did not answer.
	alive  map[compute.NodeID]life          // Servers with calls in flight.
}

// life ends when gossip loses a server.
type life struct {
	ctx context.Context //nolint:containedctx // It ends with the server, as this node sees it.
	end context.CancelFunc
}

func newUpstream(c *Cluster) *upstream {
	return &upstream{
		c: c, failed: make(map[compute.NodeID]time.Duration), alive: make(map[compute.NodeID]life),
	}
}

// leading returns the server that answered the last heartbeat.
func (u *upstream) leading() (compute.NodeID, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.leader, !u.leader.IsZero()
}

// lead records the leader, the zero id for none.
func (u *upstream) lead(id compute.NodeID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.leader = id
}

// note records whether a server has answered.
func (u *upstream) note(id compute.NodeID, answered bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if answered {
		u.last = id
		delete(u.failed, id)
		return
	}
	u.failed[id] = boottime.Now()
	if u.last == id {
		u.last = compute.NodeID{}
	}
}

// servers returns the servers with their newest addresses.
func (u *upstream) servers() []raftconf.Server {
	peers := u.c.dir.Record().Peers
	servers := make([]raftconf.Server, 0, len(peers))
	for _, p := range peers {
		address := p.RPC
		if known := u.c.port.addressesOf(p.ID); len(known) > 0 {
			address = known[0]
		}
		servers = append(servers, raftconf.Server{ID: p.ID, Address: address})
	}
	return servers
}

// order returns the servers in the order to ask them: the one that answered last,
// those that gossip sees alive, those that failed recently, the lost ones.
func (u *upstream) order() []compute.NodeID {
	peers := u.c.dir.Record().Peers
	ids := make([]compute.NodeID, 0, len(peers))
	rank := make(map[compute.NodeID]int, len(peers))
	for _, p := range peers {
		ids = append(ids, p.ID)
		rank[p.ID] = 1
		if u.c.gossip.Lost(p.ID) {
			rank[p.ID] = 3
		}
	}
	u.mu.Lock()
	for id, at := range u.failed {
		if rank[id] == 1 && boottime.Now()-at < avoidFor {
			rank[id] = 2
		}
	}
	if rank[u.last] == 1 {
		rank[u.last] = 0
	}
	u.mu.Unlock()
	slices.SortFunc(ids, func(a, b compute.NodeID) int {
		return cmp.Or(cmp.Compare(rank[a], rank[b]), u.c.workerCalls.spreadOrder(a, b))
	})
	return ids
}

// while returns a context that ends with ctx, and when gossip loses the
// server. The caller calls end.
func (u *upstream) while(ctx context.Context, id compute.NodeID) (_ context.Context, end func()) {
	u.mu.Lock()
	l, known := u.alive[id]
	if !known {
		l.ctx, l.end = context.WithCancel(context.Background())
		u.alive[id] = l
	}
	u.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.ctx, func() { cancel(errServerLost) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// run updates the list of servers and ends the calls to lost ones.
func (u *upstream) run(ctx context.Context) error {
	ticker := time.NewTicker(peersSaveEvery)
	defer ticker.Stop()
	defer u.endLost(func(compute.NodeID) bool { return true })
	u.learn(ctx)
	for {
		changed := u.c.gossip.Changed()
		u.endLost(u.c.gossip.Lost)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
			u.learn(ctx)
		}
	}
}

// endLost ends the calls to the servers for which gone reports true.
func (u *upstream) endLost(gone func(compute.NodeID) bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, l := range u.alive {
		if gone(id) {
			l.end()
			delete(u.alive, id)
		}
	}
}

// learn asks a server for all of them.
func (u *upstream) learn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	data, err := u.c.Ask(ctx, methodServers, nil)
	var reported []joinPeer
	if err == nil {
		err = u.c.codec.Unmarshal(data, &reported)
	}
	if err == nil {
		err = u.save(reported)
	}
	if err != nil && ctx.Err() == nil {
		u.c.logger.Debug("server list not updated", "err", err)
	}
}

// save saves the servers.
func (u *upstream) save(reported []joinPeer) error {
	record := u.c.dir.Record()
	var peers []datadir.Peer
	for _, p := range reported {
		peers = append(peers, datadir.Peer(p))
	}
	slices.SortFunc(peers, func(a, b datadir.Peer) int { return slices.Compare(a.ID.UUID[:], b.ID.UUID[:]) })
	if len(peers) == 0 || slices.Equal(peers, record.Peers) {
		return nil
	}
	return u.c.dir.Update(func(r *datadir.Record) { r.Peers = peers })
}
