package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/raftconf"
	"berth/compute"
	"berth/fault"
)

// Limits of membership.
const (
	tendTick       = 500 * time.Millisecond
	tendTimeout    = 5 * time.Second // Of one change of the configuration.
	statusTimeout  = time.Second
	maxLook        = 2 * time.Second // More between two looks says nothing about others: this process stood still.
	caughtUp       = 250             // Entries that a server may trail and still keep up.
	peersSaveEvery = 10 * time.Second
	peersLookEvery = time.Second // On a server: a damaged replica is replaced with the help of those it has saved.
)

// tendMembers keeps the raft configuration as it should be while this node
// leads. It is level-triggered: each look begins from what is there.
func (c *Cluster) tendMembers(ctx context.Context) error {
	err := c.WhileLeader(ctx, func(ctx context.Context, _ uint64) error {
		seen := newCensus()
		defer c.metrics.showVoters(0, 0, 0)
		defer c.metrics.lag.Reset() // Who leads next knows better.
		ticker := time.NewTicker(tendTick)
		defer ticker.Stop()
		for {
			if err := c.tend(ctx, seen); err != nil && ctx.Err() == nil {
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
func (c *Cluster) tend(ctx context.Context, seen *census) error {
	future := c.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	servers := future.Configuration().Servers
	if done, err := c.admitHeard(servers, future.Index()); done {
		return err
	}
	c.measure(ctx, servers, seen)
	if ctx.Err() != nil {
		return ctx.Err() // Nobody answers to a term that is over.
	}
	roll := c.roll(servers, seen)
	step, obstacles := roll.next()
	voters, _ := roll.count()
	c.metrics.showVoters(voters, roll.answering(), len(obstacles))
	c.tellObstacles(seen, obstacles)
	if step.action == actionNone {
		return nil
	}
	c.logger.Info("membership changes", "node", step.server, "status", string(step.action), "code", step.reason)
	if err := c.take(step, servers, future.Index()); err != nil {
		return fmt.Errorf("%s server %s: %w", step.action, step.server, err)
	}
	fault.Point("cluster.member.changed")
	if step.action == actionDemote {
		seen.demoted[step.server] = true
	}
	return nil
}

// take does one change of the configuration with the index prev.
func (c *Cluster) take(step change, servers []raft.Server, prev uint64) error {
	id := raftconf.ServerID(step.server)
	at := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == id })
	switch step.action {
	case actionRemove:
		fault.Point("cluster.member.remove")
		return c.raft.RemoveServer(id, prev, tendTimeout).Error()
	case actionDemote:
		fault.Point("cluster.member.demote")
		return c.raft.DemoteVoter(id, prev, tendTimeout).Error()
	case actionPromote:
		fault.Point("cluster.member.promote")
		return c.raft.AddVoter(id, servers[at].Address, prev, tendTimeout).Error()
	case actionTransfer:
		return c.transferOnce(func() raft.Future { return c.raft.LeadershipTransferToServer(id, servers[at].Address) })
	case actionNone:
	}
	return nil
}

// tellObstacles logs who has to stay a voter, once for each reason.
func (c *Cluster) tellObstacles(seen *census, obstacles []obstacle) {
	told := make(map[compute.NodeID]string, len(obstacles))
	for _, o := range obstacles {
		told[o.server] = o.reason
		if seen.told[o.server] != o.reason {
			c.logger.Warn("server stays a voter", "node", o.server, "code", o.reason,
				"err", fmt.Sprintf("without it %d of %d voters would keep up", o.current, o.voters))
		}
	}
	seen.told = told
}

// admitHeard adds a server that sends heartbeats but is not in the
// configuration. It reports whether there was one. A server that moved keeps
// its old address there: who dials it knows better (see addressesOf), and the
// library changes addresses in a way that races with its replication.
func (c *Cluster) admitHeard(servers []raft.Server, prev uint64) (bool, error) {
	for id, address := range c.heartbeats.servers() {
		if c.removed(id) || slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == raftconf.ServerID(id) }) {
			continue
		}
		c.logger.Info("server enters the configuration", "node", id)
		return true, c.raft.AddNonvoter(raftconf.ServerID(id), raft.ServerAddress(address), prev, tendTimeout).Error()
	}
	return false, nil
}

// census is what a leader has seen of the servers in its term.
type census struct {
	at      time.Time // Of the last look.
	others  int       // Servers that it asked.
	steady  map[compute.NodeID]time.Duration
	silent  map[compute.NodeID]time.Duration
	demoted map[compute.NodeID]bool   // For their silence, as long as it lasts.
	told    map[compute.NodeID]string // Why each stays a voter, as logged.
}

func newCensus() *census {
	return &census{
		steady:  make(map[compute.NodeID]time.Duration),
		silent:  make(map[compute.NodeID]time.Duration),
		demoted: make(map[compute.NodeID]bool),
		told:    make(map[compute.NodeID]string),
	}
}

// note adds what one look found: whether the server answered, and whether it
// keeps up. A look counts for at least a moment.
func (s *census) note(id compute.NodeID, took time.Duration, answered, keepsUp bool) {
	took = max(took, 1)
	if answered {
		delete(s.silent, id)
		delete(s.demoted, id)
	} else {
		s.silent[id] += took
	}
	if keepsUp {
		s.steady[id] += took
	} else {
		delete(s.steady, id)
	}
}

// roll returns the configuration with what was seen of its servers.
func (c *Cluster) roll(servers []raft.Server, seen *census) *roll {
	r := &roll{
		self: c.id, voters: c.cfg.Voters,
		promoteAfter: c.cfg.PromoteAfter, replaceAfter: c.cfg.ReplaceAfter,
		transferred: c.transferred.Load(),
	}
	for _, s := range servers {
		id := raftconf.NodeOf(s.ID)
		r.members = append(r.members, member{
			id: id, voter: s.Suffrage == raft.Voter, removed: c.removed(id),
			demoted: seen.demoted[id], steady: seen.steady[id], silent: seen.silent[id],
		})
	}
	return r
}

// measure asks each other server how far it is.
func (c *Cluster) measure(ctx context.Context, servers []raft.Server, seen *census) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replies := c.askStatus(ctx, servers)
	now := time.Now() //nolint:forbidigo // A stopwatch.
	took := min(now.Sub(seen.at), maxLook)
	if seen.at.IsZero() {
		took = 0
	}
	seen.at = now
	if len(replies) != seen.others {
		c.metrics.lag.Reset() // One of them may be a server no more.
	}
	seen.others = len(replies)
	for id, r := range replies {
		c.room.note(id, r.err == nil && r.full)
		if r.err == nil {
			c.metrics.lag.WithLabelValues(id.String()).Set(float64(r.lag))
		}
		seen.note(id, took, r.err == nil, r.keepsUp())
	}
}

// statusReply is how a server answered.
type statusReply struct {
	lag    int64 // Entries that it trails this node.
	full   bool  // Its disk is short of room.
	behind bool  // It came in empty and has not caught up.
	err    error
}

// keepsUp reports whether a server could be counted on in a quorum.
func (r statusReply) keepsUp() bool { return r.err == nil && !r.behind && r.lag <= caughtUp }

// askStatus asks all servers but this one at once.
func (c *Cluster) askStatus(ctx context.Context, servers []raft.Server) map[compute.NodeID]statusReply {
	type reply struct {
		id  compute.NodeID
		st  status
		err error
	}
	replies := make(chan reply, len(servers)) // Room for all, so that none blocks.
	asked := 0
	for _, s := range servers {
		id := raftconf.NodeOf(s.ID)
		if id == c.id {
			continue
		}
		asked++
		c.work.Go(func() {
			st, err := c.status(ctx, id)
			replies <- reply{id, st, err}
		})
	}
	out := make(map[compute.NodeID]statusReply, asked)
	for range asked {
		r := <-replies
		// This node's log is read after the other's, so the lag is never too
		// small.
		out[r.id] = statusReply{
			lag:  max(int64(c.raft.LastIndex())-int64(r.st.Last), 0),
			full: r.st.Full, behind: r.st.Behind, err: r.err,
		}
	}
	return out
}

// addServer lets a server that was just admitted into the configuration, as a
// non-voter, unless it is there.
func (c *Cluster) addServer(id compute.NodeID, address string) error {
	for _, s := range c.servers() {
		if s.ID == raftconf.ServerID(id) {
			return nil
		}
	}
	if fault.Planted(fault.DirectVoter) {
		return c.answerTo(c.raft.AddVoter(raftconf.ServerID(id), raft.ServerAddress(address), 0, tendTimeout))
	}
	return c.answerTo(c.raft.AddNonvoter(raftconf.ServerID(id), raft.ServerAddress(address), 0, tendTimeout))
}

// Servers returns the servers of the newest configuration that this node has,
// committed or not; on a worker those that a server has told it of.
func (c *Cluster) Servers() []raftconf.Server {
	if c.isWorker() {
		return c.upstream.servers()
	}
	configured := c.servers()
	servers := make([]raftconf.Server, 0, len(configured))
	for _, s := range configured {
		id, address := raftconf.NodeOf(s.ID), string(s.Address)
		if known := c.addressesOf(id); len(known) > 0 {
			address = known[0]
		}
		servers = append(servers, raftconf.Server{ID: id, Address: address, Voter: s.Suffrage == raft.Voter})
	}
	return servers
}

// rememberPeers keeps on disk where the other servers are, for the next
// start.
func (c *Cluster) rememberPeers(ctx context.Context) error {
	for pause(ctx, peersLookEvery) == nil {
		if err := c.savePeers(); err != nil {
			c.logger.Warn("addresses of peers not saved", "err", err)
		}
	}
	return nil
}

func (c *Cluster) savePeers() error {
	if c.behind.Load() {
		return nil // The configurations that it is sent are old ones.
	}
	record := c.dir.Record()
	var peers []datadir.Peer
	for _, s := range c.Servers() {
		if s.ID == c.id {
			continue
		}
		p := datadir.Peer{ID: s.ID, RPC: s.Address, Gossip: c.gossip.AddressOf(s.ID)}
		i := slices.IndexFunc(record.Peers, func(old datadir.Peer) bool { return old.ID == s.ID })
		if p.Gossip == "" && i >= 0 {
			p.Gossip = record.Peers[i].Gossip
		}
		peers = append(peers, p)
	}
	if len(peers) == 0 || slices.Equal(peers, record.Peers) {
		return nil
	}
	return c.dir.Update(func(r *datadir.Record) { r.Peers = peers })
}
