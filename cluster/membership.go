package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/compute"
)

// Limits of membership.
const (
	tendTick       = 500 * time.Millisecond
	tendTimeout    = 5 * time.Second // Of one change of the configuration.
	statusTimeout  = time.Second
	caughtUp       = 250 // Entries that a server may trail when it becomes a voter.
	votersSmall    = 3
	votersLarge    = 5
	largeFrom      = 7 // Servers from which on votersLarge vote.
	peersSaveEvery = 10 * time.Second
)

// tendMembers keeps the raft configuration as it should be while this node
// leads. It is level-triggered: each look begins from what is there.
func (c *Cluster) tendMembers(ctx context.Context) error {
	err := c.WhileLeader(ctx, func(ctx context.Context, _ uint64) error {
		steady := make(map[compute.NodeID]time.Time) // Since when each server keeps up.
		ticker := time.NewTicker(tendTick)
		defer ticker.Stop()
		for {
			if err := c.tend(ctx, steady); err != nil && ctx.Err() == nil {
				c.logger.Warn("membership not changed", "err", err)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return nil
			}
		}
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// tend makes the first change that is due.
func (c *Cluster) tend(ctx context.Context, steady map[compute.NodeID]time.Time) error {
	future := c.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	servers := future.Configuration().Servers
	for _, s := range servers {
		if c.removed(nodeOf(s.ID)) {
			c.logger.Info("server leaves the configuration", "node", s.ID)
			return c.raft.RemoveServer(s.ID, future.Index(), tendTimeout).Error()
		}
	}
	if done, err := c.admitHeard(servers, future.Index()); done {
		return err
	}
	c.measure(ctx, servers, steady)
	return c.promote(servers, future.Index(), steady)
}

// admitHeard adds a server that sends heartbeats but is not in the
// configuration. It reports whether there was one. A server that moved keeps
// its old address there: who dials it knows better (see addressesOf), and the
// library changes addresses in a way that races with its replication.
func (c *Cluster) admitHeard(servers []raft.Server, prev uint64) (bool, error) {
	for id, address := range c.heartbeats.servers() {
		if c.removed(id) || slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == serverID(id) }) {
			continue
		}
		c.logger.Info("server enters the configuration", "node", id)
		return true, c.raft.AddNonvoter(serverID(id), raft.ServerAddress(address), prev, tendTimeout).Error()
	}
	return false, nil
}

// measure asks each other server how far it is, and notes since when it keeps
// up.
func (c *Cluster) measure(ctx context.Context, servers []raft.Server, steady map[compute.NodeID]time.Time) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	type reply struct {
		id   compute.NodeID
		last uint64
		err  error
	}
	replies := make(chan reply, len(servers)) // Room for all, so that none blocks.
	asked := 0
	for _, s := range servers {
		id := nodeOf(s.ID)
		if id == c.id {
			continue
		}
		asked++
		c.work.Go(func() {
			st, err := c.status(ctx, id)
			replies <- reply{id, st.Last, err}
		})
	}
	for range asked {
		r := <-replies
		// The leader's log is read after the other's, so the lag is never
		// too small.
		lag := int64(c.raft.LastIndex()) - int64(r.last)
		if r.err == nil {
			c.metrics.lag.WithLabelValues(r.id.String()).Set(float64(max(lag, 0)))
		}
		if r.err != nil || lag > caughtUp {
			delete(steady, r.id)
		} else if _, ok := steady[r.id]; !ok {
			steady[r.id] = time.Now() //nolint:forbidigo // A stopwatch.
		}
	}
}

// promote makes one server a voter when there are too few of them and it has
// kept up for long enough. A server votes only then: a voter that is still
// catching up can cost the cluster its quorum.
func (c *Cluster) promote(servers []raft.Server, prev uint64, steady map[compute.NodeID]time.Time) error {
	voters := 0
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters++
		}
	}
	if voters >= c.wantVoters(len(servers)) {
		return nil
	}
	for _, s := range servers {
		since, ok := steady[nodeOf(s.ID)]
		if s.Suffrage == raft.Voter || !ok || time.Since(since) < c.cfg.PromoteAfter {
			continue
		}
		c.logger.Info("server becomes a voter", "node", s.ID)
		return c.raft.AddVoter(s.ID, s.Address, prev, tendTimeout).Error()
	}
	return nil
}

// wantVoters returns how many of the servers should vote.
func (c *Cluster) wantVoters(servers int) int {
	switch {
	case c.cfg.Voters > 0:
		return c.cfg.Voters
	case servers >= largeFrom:
		return votersLarge
	}
	return votersSmall
}

// addServer lets a server that was just admitted into the configuration, as a
// non-voter, unless it is there.
func (c *Cluster) addServer(id compute.NodeID, address string) error {
	for _, s := range c.servers() {
		if s.ID == serverID(id) {
			return nil
		}
	}
	return c.raft.AddNonvoter(serverID(id), raft.ServerAddress(address), 0, tendTimeout).Error()
}

// Server is a server in the raft configuration.
type Server struct {
	ID      compute.NodeID
	Address string // host:port of its cluster port, as last heard.
	Voter   bool
}

// Servers returns the servers of the newest configuration that this node has,
// committed or not.
func (c *Cluster) Servers() []Server {
	configured := c.servers()
	servers := make([]Server, 0, len(configured))
	for _, s := range configured {
		id, address := nodeOf(s.ID), string(s.Address)
		if known := c.addressesOf(id); len(known) > 0 {
			address = known[0]
		}
		servers = append(servers, Server{ID: id, Address: address, Voter: s.Suffrage == raft.Voter})
	}
	return servers
}

// rememberPeers keeps on disk where the other servers are, for the next
// start.
func (c *Cluster) rememberPeers(ctx context.Context) error {
	for pause(ctx, peersSaveEvery) == nil {
		if err := c.savePeers(); err != nil {
			c.logger.Warn("addresses of peers not saved", "err", err)
		}
	}
	return nil
}

func (c *Cluster) savePeers() error {
	record := c.files.get()
	var peers []peerRecord
	for _, s := range c.Servers() {
		if s.ID == c.id {
			continue
		}
		p := peerRecord{ID: s.ID, RPC: s.Address, Gossip: c.gossip.gossipAddress(s.ID)}
		i := slices.IndexFunc(record.Peers, func(old peerRecord) bool { return old.ID == s.ID })
		if p.Gossip == "" && i >= 0 {
			p.Gossip = record.Peers[i].Gossip
		}
		peers = append(peers, p)
	}
	if len(peers) == 0 || slices.Equal(peers, record.Peers) {
		return nil
	}
	record.Peers = peers
	return c.files.put(record)
}
