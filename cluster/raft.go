package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/liblog"
	"berth/cluster/raftconf"
	"berth/fault"
)

// Settings of Raft; reliability.md section 2 has the measurements.
const (
	commitTimeout     = 2 * time.Millisecond // Or an idle follower learns of commits 77 ms late.
	trailingLogs      = 65_536
	snapshotThreshold = 8192
	snapshotInterval  = 2 * time.Minute
	snapshotsKept     = 3
	raftPool          = 3
	raftTimeout       = 10 * time.Second
)

// raftConfig returns the library's settings for the profile.
func (c *Cluster) raftConfig() *raft.Config {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raftconf.ServerID(c.id)
	if c.cfg.Profile == ProfileLAN {
		cfg.HeartbeatTimeout = 300 * time.Millisecond
		cfg.ElectionTimeout = 300 * time.Millisecond
		cfg.LeaderLeaseTimeout = 200 * time.Millisecond
	}
	if c.cfg.electionAfter > 0 {
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = c.cfg.electionAfter, c.cfg.electionAfter
	}
	cfg.CommitTimeout = commitTimeout
	cfg.TrailingLogs = trailingLogs
	cfg.SnapshotThreshold = snapshotThreshold
	cfg.SnapshotInterval = snapshotInterval
	if every := fault.SnapshotEvery(); every > 0 {
		cfg.SnapshotThreshold, cfg.TrailingLogs, cfg.SnapshotInterval = every, every, time.Second
	}
	cfg.BatchApplyCh = false            // True would break the timeout of Apply.
	cfg.NotifyCh = nil                  // Raft blocks on it; LeaderCh is used.
	cfg.NoSnapshotRestoreOnStart = true // restoreReplica does it.
	cfg.NoLegacyTelemetry = true
	cfg.Logger = liblog.Raft(c.logger)
	return cfg
}

// reloadRaft changes settings of raft while it runs. All changes are made here:
// two that each wrote back what they had read would undo each other.
func (c *Cluster) reloadRaft(change func(*raft.ReloadableConfig)) error {
	c.reloading.Lock()
	defer c.reloading.Unlock()
	now := c.raft.ReloadableConfig()
	change(&now)
	return c.raft.ReloadConfig(now)
}

// openRaft opens the stores and starts Raft. When fresh is set the replica
// begins empty, and on the node that makes the cluster with itself as its
// only voter. A damaged one is replaced, when the other servers allow it.
func (c *Cluster) openRaft(ctx context.Context, fresh freshness) error {
	if fresh != freshNone {
		if err := c.dir.ClearReplica(); err != nil {
			return err
		}
	}
	err := c.openReplica(fresh)
	if fresh == freshNone && disk.Damaged(err) {
		if err = c.rejoin(ctx, err); err == nil {
			err = c.openReplica(fresh)
		}
	}
	if err != nil {
		return err
	}
	if err := c.room.open(); err != nil {
		return err
	}
	c.layer = &raftLayer{
		accepted:  make(chan net.Conn, raftBacklog),
		closed:    make(chan struct{}),
		advertise: c.advertise,
		dial:      c.dial,
	}
	c.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:                c.layer,
		MaxPool:               raftPool,
		MaxRPCsInFlight:       rpcsInFlight(),
		Timeout:               raftTimeout,
		ServerAddressProvider: c.layer,
		Logger:                liblog.Raft(c.logger),
	})
	if fresh == freshCluster {
		self := raft.Server{Suffrage: raft.Voter, ID: raftconf.ServerID(c.id), Address: raft.ServerAddress(c.advertise)}
		err := raft.BootstrapCluster(c.raftConfig(), c.logs, c.watchdog, c.snapshots, c.transport,
			raft.Configuration{Servers: []raft.Server{self}})
		if err != nil {
			return fmt.Errorf("bootstrap raft: %w", err)
		}
	}
	c.armed.Store(true)
	calls := newInbound(c.transport, c.logs, c.fatal, c.closed)
	c.raft, err = raft.NewRaft(c.raftConfigAtStart(), c.cfg.FSM, c.logs, c.watchdog, c.snapshots, calls)
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	c.work.Go(func() { calls.run(c.raft) })
	c.takePartWhenCaughtUp()
	c.leaders.observe(c.raft)
	c.metrics.watch(c.raft)
	c.showDamage()
	return nil
}

// leadAlone has the only voter of a cluster lead at once: there is nobody who
// might lead already. Raft looks whether it hears a leader when the timeout
// becomes shorter.
func (c *Cluster) leadAlone() {
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
		c.logger.Warn("the election waits for its timeout", "err", err)
	}
}

// rpcsInFlight returns how many appends one follower may be sent ahead: one,
// because pipelining can stop replication for good.
func rpcsInFlight() int {
	if fault.Planted(fault.PipelinedLog) {
		return raft.DefaultMaxRPCsInFlight
	}
	return 1
}

// openReplica opens what raft keeps on disk, and refuses what is damaged. What
// it refused is closed again.
func (c *Cluster) openReplica(fresh freshness) error {
	dir := c.dir.Path(datadir.RaftDir)
	_, err := os.Stat(filepath.Join(dir, disk.FileName))
	if fresh == freshNone && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: this node is a member, but its replica is gone: %w", disk.ErrCorrupt, err)
	}
	if damaged := c.dir.Record().Damaged; fresh == freshNone && damaged != "" {
		return fmt.Errorf("%w: %s", disk.ErrCorrupt, damaged)
	}
	if err = c.openStores(dir); err != nil && c.store != nil {
		err = errors.Join(err, c.store.Close())
		c.store = nil
	}
	return err
}

// openStores opens the log and the snapshots.
func (c *Cluster) openStores(dir string) (err error) {
	if err := disk.RemoveUnfinishedSnapshots(dir); err != nil {
		return err
	}
	c.watchdog = &disk.Watchdog{Now: time.Now, Observed: c.metrics.fsync}
	c.snapshots, err = disk.OpenSnapshots(dir, snapshotsKept, c.watchdog, c.fatalOnceArmed, liblog.Raft(c.logger))
	if err != nil {
		return err
	}
	covered, claimed, err := c.snapshots.Listed()
	if err != nil {
		return err
	}
	if err := checkCluster(dir, c.clusterID); err != nil {
		return err
	}
	if c.store, err = disk.Open(dir, covered, c.fatalOnceArmed); err != nil {
		return err
	}
	if err := checkOwner(c.store, dir, c.clusterID, c.id); err != nil {
		return err
	}
	if err := disk.CheckGap(c.store, covered, claimed); err != nil {
		return err
	}
	newest, err := c.restoreReplica(claimed)
	if err != nil {
		return err
	}
	if err := c.checkState(); err != nil {
		return err
	}
	if err := takeOver(c.store, newest, c.clusterID, c.id); err != nil {
		return err
	}
	c.watchdog.LogStore, c.watchdog.Stable = c.cfg.wrapStore(c.store), c.store
	c.watchdog.Starved, c.watchdog.Probe = c.store.Starved, c.store.Probe
	c.watchdog.MayVote = func() bool { return !c.behind.Load() }
	if prober, ok := c.watchdog.LogStore.(interface{ Probe() error }); ok {
		c.watchdog.Probe = prober.Probe
	}
	c.logs = &disk.Cache{LogStore: c.watchdog}
	return nil
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

// CommitIndex returns the newest index that this node knows to be committed.
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
