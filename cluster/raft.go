package cluster

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/cluster/liblog"
	"berth/cluster/raftconf"
	"berth/cluster/replica"
	"berth/cluster/timing"
	"berth/cluster/transport"
	"berth/fault"
)

// Settings of Raft; reliability.md section 2 has the measurements.
const (
	commitTimeout     = 500 * time.Millisecond // Outbound reports commits before. A failed append waits for it.
	trailingLogs      = 65_536
	snapshotThreshold = 8192
	snapshotInterval  = 2 * time.Minute
	raftPool          = 3
	raftTimeout       = 10 * time.Second

	lanTimeout = 300 * time.Millisecond
	lanLease   = 200 * time.Millisecond
	// A leader sends a heartbeat to each follower after a tenth to a fifth of its own timeout. Each one wakes two
	// processes, which is most of what an idle cluster costs. With this timeout three to six fit into that
	// of a follower, and two to four into the lease. After failed heartbeats it tries again within 225 ms.
	lanLeading = 450 * time.Millisecond
)

// raftNode configures and starts Raft.
type raftNode struct{ *Cluster }

// raftConfig returns the library's settings for the profile.
func (c raftNode) raftConfig() *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raftconf.ServerID(c.id)
	if c.profile == ProfileLAN {
		cfg.HeartbeatTimeout = lanTimeout
		cfg.ElectionTimeout = lanTimeout
		cfg.LeaderLeaseTimeout = lanLease
	}
	if c.cfg.electionAfter > 0 {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = c.cfg.electionAfter, c.cfg.electionAfter
	}
	cfg.CommitTimeout = commitTimeout
	if c.cfg.commitAfter > 0 {
		cfg.CommitTimeout = c.cfg.commitAfter
	}
	cfg.TrailingLogs = trailingLogs
	cfg.SnapshotThreshold = snapshotThreshold
	cfg.SnapshotInterval = snapshotInterval
	if every := fault.SnapshotEvery(); every > 0 {
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = every, every, time.Second
	}
	cfg.BatchApplyCh = false            // True would break the timeout of Apply.
	cfg.NotifyCh = nil                  // Raft blocks on it; LeaderCh is used.
	cfg.NoSnapshotRestoreOnStart = true // Replica.Open does it.
	cfg.NoLegacyTelemetry = true
	cfg.Logger = liblog.Raft(c.logger)
	return cfg
}

// chooseProfile returns the configured profile of the timers, or one that suits the
// disk and the network of this server.
func (c raftNode) chooseProfile(ctx context.Context) string {
	if c.cfg.Profile != ProfileAuto {
		return c.cfg.Profile
	}
	servers := slices.Clone(c.cfg.JoinHosts)
	for _, peer := range c.dir.Record().Peers {
		servers = append(servers, peer.RPC)
	}
	slices.Sort(servers)
	dial := c.cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	measured, err := timing.Measure(ctx, c.cfg.DataDir, slices.Compact(servers), dial)
	profile := ProfileDefault
	switch {
	case err != nil:
		c.logger.Warn("raft timers not measured; those of slow networks are used", "err", err)
	case measured.Fast():
		profile = ProfileLAN
		c.logger.Info("raft fails over within a second: disk and network are fast", "reason", measured.String())
	default:
		c.logger.Info("raft fails over within three seconds: disk or network is slow; raft.profile lan overrides that",
			"reason", measured.String())
	}
	return profile
}

// reloadRaft changes settings of running raft. It serializes the changes: otherwise
// concurrent ones would undo each other.
func (c raftNode) reloadRaft(change func(*raft.ReloadableConfig)) error {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	now := c.raft.ReloadableConfig()
	change(&now)
	return c.raft.ReloadConfig(now)
}

// setTimeouts sets the timeouts of a leader, by which it sends heartbeats less often, or those of a
// follower.
func (c raftNode) setTimeouts(leads bool) {
	if c.profile != ProfileLAN || c.cfg.electionAfter > 0 {
		return
	}
	timeout := lanTimeout
	if leads {
		timeout = lanLeading
	}
	err := c.reloadRaft(func(now *raft.ReloadableConfig) { now.HeartbeatTimeout, now.ElectionTimeout = timeout, timeout })
	if err != nil {
		c.logger.Warn("raft timeouts not changed", "err", err)
	}
}

// openRaft opens the stores and starts Raft. A fresh replica begins empty; on the
// node that makes the cluster, with that node as the only voter. A damaged one is
// replaced if the other servers allow it.
func (c raftNode) openRaft(ctx context.Context, fresh freshness) error {
	if fresh != freshNone {
		if err := c.dir.ClearReplica(); err != nil {
			return err
		}
	}
	err := c.replica.Open(fresh != freshNone)
	if fresh == freshNone && disk.Damaged(err) {
		if err = c.rejoiner.rejoin(ctx, err); err == nil {
			err = c.replica.Open(false)
		}
	}
	if err != nil {
		return err
	}
	if err := c.space.open(); err != nil {
		return err
	}
	c.layer = transport.NewLayer(c.advertise, c.port.dial)
	c.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:                c.layer,
		MaxPool:               raftPool,
		MaxRPCsInFlight:       rpcsInFlight(),
		Timeout:               raftTimeout,
		ServerAddressProvider: c.layer,
		Logger:                liblog.Raft(c.logger),
	})
	c.profile = c.chooseProfile(ctx)
	if fresh == freshCluster {
		self := raft.Server{Suffrage: raft.Voter, ID: raftconf.ServerID(c.id), Address: raft.ServerAddress(c.advertise)}
		err := raft.BootstrapCluster(c.raftConfig(), c.replica.Cache, c.replica.Watchdog, c.replica.Snapshots, c.transport,
			raft.Configuration{Servers: []raft.Server{self}})
		if err != nil {
			return fmt.Errorf("bootstrap raft: %w", err)
		}
	}
	c.replica.Arm()
	calls := transport.NewInbound(c.transport, c.replica.Cache, c.fatal, c.closed)
	c.commits = transport.NewOutbound(calls, c.replica.Cache)
	c.raft, err = raft.NewRaft(c.catchUp.raftConfigAtStart(), c.cfg.FSM,
		c.replica.Cache, c.replica.Watchdog, c.replica.Snapshots, c.commits)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	c.commits.Lead(c.raft)
	c.work.Go(func() { calls.Run(c.raft) })
	c.catchUp.participateOnceCaughtUp()
	c.leaders.observe(c.raft)
	c.metrics.watch(c.raft)
	c.replica.Start(c.raft)
	return nil
}

// newReplica wires the replica and its comparer. They hold no file yet.
func (c raftNode) newReplica() {
	c.replica = replica.New(replica.Config{
		Dir: c.dir, Cluster: c.clusterID, Node: c.id,
		FSM: c.cfg.FSM, StateCluster: c.cfg.StateCluster, CheckState: c.cfg.CheckState,
		MayVote: func() bool { return !c.behind.Load() }, WrapStore: c.cfg.wrapStore, Space: c.cfg.freeSpace,
		Fsync: c.metrics.fsync, Fatal: c.fatal,
		Logger: c.logger, Registerer: c.cfg.Registerer, Now: c.cfg.Now,
	})
	c.comparer = replica.NewComparer(replica.CompareConfig{
		Node: c.id, Version: c.cfg.Version, StateMarks: c.cfg.StateMarks,
		MarksMethod: methodMarks, DivergedMethod: methodDiverged,
		Dir: c.dir, Codec: c.codec, Logger: c.logger, Now: c.cfg.Now, Fatal: c.fatal,
		Go: c.work.Go, Servers: c.servers, Call: c.Call, WhileLeader: c.WhileLeader,
	}, c.cfg.Registerer)
	c.Handle(methodMarks, Servers, c.comparer.HandleMarks)
	c.Handle(methodDiverged, Servers, c.comparer.HandleDiverged)
}

// leadAlone makes the only voter of a cluster lead at once: no other server can be
// the leader. Raft starts an election when its timeout becomes shorter.
func (c raftNode) leadAlone() {
	alone := false
	for _, s := range c.servers() {
		if s.Suffrage == raft.Voter {
			if alone = raftconf.NodeOf(s.ID) == c.id; !alone {
				return
			}
		}
	}
	if !alone || c.behind.Load() {
		return
	}
	if err := c.reloadRaft(func(now *raft.ReloadableConfig) { now.HeartbeatTimeout-- }); err != nil {
		c.logger.Warn("election not started early", "err", err)
	}
}

// rpcsInFlight returns how many appends to a follower may be in flight: one,
// because pipelining can stop replication for good.
func rpcsInFlight() int {
	if fault.Planted(fault.PipelinedLog) {
		return raft.DefaultMaxRPCsInFlight
	}
	return 1
}

// servers returns the latest raft configuration, none before Raft runs.
func (c *Cluster) servers() []raft.Server {
	if c.raft == nil {
		return nil
	}
	future := c.raft.GetConfiguration()
	if future.Error() != nil {
		return nil
	}
	return future.Configuration().Servers
}

// LastIndex returns the index of the newest entry on this node, committed or
// not.
func (c *Cluster) LastIndex() uint64 { return c.raft.LastIndex() }

// CommitIndex returns the newest index that this node knows as committed.
func (c *Cluster) CommitIndex() uint64 { return c.raft.CommitIndex() }

// LastContact returns how long ago this node heard from the leader: zero on
// the leader, and a very long time when it never did. On a worker it is how
// long ago it sent the last heartbeat that was answered.
func (c *Cluster) LastContact() time.Duration {
	if c.isWorker() {
		return c.heartbeats.age()
	}
	if c.raft.State() == raft.Leader {
		return 0
	}
	at := c.raft.LastContact()
	if at.IsZero() {
		return time.Duration(1<<63 - 1)
	}
	return time.Since(at)
}
