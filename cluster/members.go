package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/membership"
	"berth/cluster/raftconf"
	"berth/compute"
	"berth/fault"
	"berth/loop"
)

// Limits of membership.
const (
	membersTick      = 500 * time.Millisecond
	settledEvery     = 1900 * time.Millisecond // Between two measurements while no change is near: with every fourth tick.
	changeTimeout    = 5 * time.Second         // For one configuration change.
	statusTimeout    = time.Second
	maxMeasured      = membersTick + statusTimeout // The most that one measurement counts: for longer nobody looked.
	caughtUp         = 250                         // Entries that a server may trail and still keep up.
	peersSaveEvery   = 10 * time.Second
	peersServerEvery = time.Second // On a server: a damaged replica is replaced with the help of the saved servers.
)

// members changes Raft's configuration by the membership plan and remembers the servers.
type members struct{ *Cluster }

// manage keeps the Raft configuration as planned while this node leads. It is
// level-triggered: each step begins with the present configuration.
func (c members) manage(ctx context.Context) error {
	err := c.WhileLeader(ctx, func(ctx context.Context, _ uint64) error {
		seen := membership.NewObservations()
		defer c.metrics.showVoters(0, 0, 0)
		defer c.metrics.lag.Reset() // The next leader measures again.
		loop.Every(ctx, membersTick, func() {
			if err := c.adjust(ctx, seen); err != nil && ctx.Err() == nil {
				c.logger.Warn("raft configuration not changed", "err", err)
			}
		})
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// adjust makes the first change that is due.
func (c members) adjust(ctx context.Context, seen *membership.Observations) error {
	future := c.raft.GetConfiguration()
	if err := future.Error(); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	servers := future.Configuration().Servers
	if done, err := c.addHeard(servers, future.Index()); done {
		return err
	}
	if c.plan(servers, seen).Settled() && time.Since(seen.At) < settledEvery {
		return nil
	}
	c.measure(ctx, servers, seen)
	if ctx.Err() != nil {
		return ctx.Err() // The term is over.
	}
	plan := c.plan(servers, seen)
	step, obstacles := plan.Next()
	voters, _ := plan.Count()
	c.metrics.showVoters(voters, plan.Answering(), len(obstacles))
	c.logObstacles(seen, obstacles)
	if step.Action == membership.None {
		return nil
	}
	c.logger.Info("changing raft configuration", "node", step.Server, "status", string(step.Action), "code", step.Reason)
	if err := c.take(step, servers, future.Index()); err != nil {
		return fmt.Errorf("%s server %s: %w", step.Action, step.Server, err)
	}
	fault.Point("cluster.member.changed")
	if step.Action == membership.Demote {
		seen.Demoted[step.Server] = true
	}
	return nil
}

// take makes one change to the configuration with the index prev.
func (c members) take(step membership.Change, servers []raft.Server, prev uint64) error {
	id := raftconf.ServerID(step.Server)
	at := slices.IndexFunc(servers, func(s raft.Server) bool { return s.ID == id })
	switch step.Action {
	case membership.Remove:
		fault.Point("cluster.member.remove")
		return c.raft.RemoveServer(id, prev, changeTimeout).Error()
	case membership.Demote:
		fault.Point("cluster.member.demote")
		return c.raft.DemoteVoter(id, prev, changeTimeout).Error()
	case membership.Promote:
		fault.Point("cluster.member.promote")
		return c.raft.AddVoter(id, servers[at].Address, prev, changeTimeout).Error()
	case membership.Transfer:
		return c.transfers.transferOnce(func() raft.Future {
			return c.raft.LeadershipTransferToServer(id, servers[at].Address)
		})
	case membership.None:
	}
	return nil
}

// logObstacles logs which servers must stay voters, once for each reason.
func (c members) logObstacles(seen *membership.Observations, obstacles []membership.Obstacle) {
	logged := make(map[compute.NodeID]string, len(obstacles))
	for _, o := range obstacles {
		logged[o.Server] = o.Reason
		if seen.Logged[o.Server] != o.Reason {
			c.logger.Warn("server stays a voter", "node", o.Server, "code", o.Reason,
				"err", fmt.Sprintf("without it %d of %d voters would keep up", o.Current, o.Voters))
		}
	}
	seen.Logged = logged
}

// addHeard adds a server that sends heartbeats but is not in the configuration,
// and reports whether there was one. A server that moved keeps its old address
// there: dialling resolves ids (see addressesOf), and changing an address races
// with raft's replication.
func (c members) addHeard(servers []raft.Server, prev uint64) (bool, error) {
	for id, address := range c.heartbeats.servers() {
		if c.removed(id) || slices.ContainsFunc(servers, func(s raft.Server) bool { return s.ID == raftconf.ServerID(id) }) {
			continue
		}
		c.logger.Info("adding server to raft configuration", "node", id)
		return true, c.raft.AddNonvoter(raftconf.ServerID(id), raft.ServerAddress(address), prev, changeTimeout).Error()
	}
	return false, nil
}

// plan returns the configuration with the observations of its servers.
func (c members) plan(servers []raft.Server, seen *membership.Observations) *membership.Plan {
	p := &membership.Plan{
		Self: c.id, Voters: c.cfg.Voters,
		PromoteAfter: c.cfg.PromoteAfter, ReplaceAfter: c.cfg.ReplaceAfter,
		Transferred: c.transferred.Load(),
	}
	for _, s := range servers {
		id := raftconf.NodeOf(s.ID)
		p.Members = append(p.Members, membership.Member{
			ID: id, Voter: s.Suffrage == raft.Voter, Removed: c.removed(id),
			Demoted: seen.Demoted[id], Steady: seen.Steady[id], Silent: seen.Silent[id],
		})
	}
	return p
}

// measure asks the other servers for their status.
func (c members) measure(ctx context.Context, servers []raft.Server, seen *membership.Observations) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replies := c.askStatus(ctx, servers)
	now := time.Now() //nolint:forbidigo // A stopwatch.
	took := min(now.Sub(seen.At), maxMeasured)
	if seen.At.IsZero() {
		took = 0
	}
	seen.At = now
	if len(replies) != seen.Others {
		c.metrics.lag.Reset() // One of them may have been removed.
	}
	seen.Others = len(replies)
	for id, r := range replies {
		c.space.note(id, r.err == nil && r.full)
		if r.err == nil {
			c.metrics.lag.WithLabelValues(id.String()).Set(float64(r.lag))
		}
		seen.Note(id, took, r.err == nil, r.keepsUp())
	}
}

// statusReply is one server's answer.
type statusReply struct {
	lag    int64 // Entries that it trails this node.
	full   bool  // Its disk is full.
	behind bool  // It rejoined with an empty replica and has not caught up.
	err    error
}

// keepsUp reports whether a server could be counted on in a quorum.
func (r statusReply) keepsUp() bool { return r.err == nil && !r.behind && r.lag <= caughtUp }

// askStatus asks all other servers at once.
func (c members) askStatus(ctx context.Context, servers []raft.Server) map[compute.NodeID]statusReply {
	type reply struct {
		id  compute.NodeID
		st  status
		err error
	}
	replies := make(chan reply, len(servers)) // Buffered for all, so that none blocks.
	asked := 0
	for _, s := range servers {
		id := raftconf.NodeOf(s.ID)
		if id == c.id {
			continue
		}
		asked++
		c.work.Go(func() {
			st, err := c.healthReport.status(ctx, id)
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

// addServer adds a server that was just admitted to the configuration, as a
// non-voter, unless it is there.
func (c members) addServer(id compute.NodeID, address string) error {
	for _, s := range c.servers() {
		if s.ID == raftconf.ServerID(id) {
			return nil
		}
	}
	if fault.Planted(fault.DirectVoter) {
		return c.raftNode.answerTo(c.raft.AddVoter(raftconf.ServerID(id), raft.ServerAddress(address), 0, changeTimeout))
	}
	return c.raftNode.answerTo(c.raft.AddNonvoter(raftconf.ServerID(id), raft.ServerAddress(address), 0, changeTimeout))
}

// Servers returns the servers of the newest configuration that this node has,
// committed or not. On a worker it returns those that a server reported.
func (c *Cluster) Servers() []raftconf.Server {
	if c.isWorker() {
		return c.upstream.servers()
	}
	configured := c.servers()
	servers := make([]raftconf.Server, 0, len(configured))
	for _, s := range configured {
		id, address := raftconf.NodeOf(s.ID), string(s.Address)
		if known := c.port.addressesOf(id); len(known) > 0 {
			address = known[0]
		}
		servers = append(servers, raftconf.Server{ID: id, Address: address, Voter: s.Suffrage == raft.Voter})
	}
	return servers
}

// rememberPeers saves the addresses of the other servers for the next start.
func (c members) rememberPeers(ctx context.Context) error {
	if !loop.Sleep(ctx, peersServerEvery) { // Until gossip knows servers that have moved.
		return nil
	}
	loop.Every(ctx, peersServerEvery, func() {
		if err := c.savePeers(); err != nil {
			c.logger.Warn("peer addresses not saved", "err", err)
		}
	})
	return nil
}

func (c members) savePeers() error {
	if c.behind.Load() {
		return nil // It receives old configurations.
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

// CheckRemoval asks all servers and returns nil when the node can be removed
// without losing the quorum: it is not a server, or the leader can take its vote in
// steps that each leave a quorum that answers. Standbys that answer count as ready
// to replace it. Other servers may fail right after; the removed server keeps its
// vote for as long as it is needed.
func (c *Cluster) CheckRemoval(ctx context.Context, id compute.NodeID) *membership.Removal {
	servers := c.servers()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replies := c.members.askStatus(ctx, servers)
	seen := membership.NewObservations()
	for node, reply := range replies {
		seen.Note(node, max(c.cfg.PromoteAfter, 1), reply.err == nil, reply.err == nil)
	}
	return c.members.foresee(servers, seen, id)
}

// foresee returns why a server must not be removed, nil when it can be.
func (c members) foresee(servers []raft.Server, seen *membership.Observations, id compute.NodeID) *membership.Removal {
	p := c.plan(servers, seen)
	// This node may be a follower; for the leader it answers and keeps up.
	if at := p.At(c.id); at >= 0 {
		p.Members[at].Steady = max(c.cfg.PromoteAfter, 1)
	}
	if leader, known := c.Leader(); known {
		p.Self = leader
	}
	at := p.At(id)
	if at < 0 {
		return nil
	}
	p.Members[at].Removed, p.Transferred = true, false
	return p.Foresee(id)
}
