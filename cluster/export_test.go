package cluster

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/pki"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
)

// WrapListener wraps the listener of the cluster port. Call it before Run.
func (c *Cluster) WrapListener(wrap func(net.Listener) net.Listener) {
	c.listener = wrap(c.listener)
}

// WrapStore inserts a wrapper between the watchdog and the store.
func (c *Config) WrapStore(wrap func(raft.LogStore) raft.LogStore) { c.wrapStore = wrap }

// CommitAfter sets after how long without an append raft tells a follower of commits.
func (c *Config) CommitAfter(d time.Duration) { c.commitAfter = d }

// ElectAfter sets how long no leader must be heard before an election.
func (c *Config) ElectAfter(d time.Duration) { c.electionAfter = d }

// FreeSpace replaces the function that reports free disk space.
func (c *Config) FreeSpace(free func() int64) {
	c.freeSpace = func(string) (int64, int64, error) { return free(), 1 << 40, nil }
}

// Profile returns the profile of raft's timers in use.
func (c *Cluster) Profile() string { return c.profile }

// LANTimeouts returns the heartbeat timeouts of the profile ProfileLAN, of a follower and of a leader.
func LANTimeouts() (follower, leader time.Duration) { return lanTimeout, lanLeading }

// HeartbeatTimeout returns the present one.
func (c *Cluster) HeartbeatTimeout() time.Duration { return c.raft.ReloadableConfig().HeartbeatTimeout }

// SeesServers reports whether gossip sees all servers alive.
func (c *Cluster) SeesServers() bool {
	alive := make(map[compute.NodeID]bool)
	for _, m := range c.gossip.Members() {
		alive[m.ID] = m.Alive
	}
	return !slices.ContainsFunc(c.members.serverIDs(), func(id compute.NodeID) bool { return !alive[id] })
}

// IndexFor returns the read index that a leader gives to a voter in a term without asking others.
func (c *Cluster) IndexFor(asker compute.NodeID, term uint64) (index uint64, ok bool) {
	return c.reader.askedIndex(asker, term)
}

// CheckSpace runs the disk check that otherwise runs every second.
func (c *Cluster) CheckSpace() bool { return c.space.check() }

// FailSnapshot simulates a snapshot that finds no disk space.
func (c *Cluster) FailSnapshot() { c.space.dropForSnapshot() }

// DropDamaged runs at once the cleanup that follows FailSnapshot.
func (c *Cluster) DropDamaged() { c.raftNode.dropDamaged() }

// BallastHeld reports whether the ballast exists.
func (c *Cluster) BallastHeld() bool { return c.space.ballast.Held() }

// ScrubOnce runs the scrub that otherwise runs every few hours.
func (c *Cluster) ScrubOnce(ctx context.Context) error { return c.replica.ScrubOnce(ctx) }

// CompareOnce compares the replicas, which a leader otherwise does every few
// seconds.
func (c *Cluster) CompareOnce(ctx context.Context) { c.comparer.CompareOnce(ctx) }

// WritePending returns how long the disk has not answered.
func (c *Cluster) WritePending() time.Duration { return c.replica.Watchdog.Pending() }

// Compact takes a snapshot and retains only a few entries before it.
func (c *Cluster) Compact() error {
	if err := c.raftNode.reloadRaft(func(now *raft.ReloadableConfig) { now.TrailingLogs = 1 }); err != nil {
		return err
	}
	return c.raft.Snapshot().Error()
}

// HearFrom delivers a heartbeat that a node sent in a term, 0 for an older version's, and returns
// the error of its answer.
func (c *Cluster) HearFrom(ctx context.Context, node compute.NodeID, term uint64) error {
	beat := c.codec.Marshal(heartbeat{Term: term})
	_, err := c.heartbeats.handle(ctx, rpc.Peer{ID: node, Role: compute.RoleServer}, beat)
	return err
}

// Transport returns the raft transport.
func (c *Cluster) Transport() raft.Transport { return c.transport }

// FirstIndex returns the oldest entry on disk.
func (c *Cluster) FirstIndex() uint64 {
	first, err := c.replica.Log.FirstIndex()
	if err != nil {
		panic(err)
	}
	return first
}

// RenewIfDue runs one tick of the renewal loop.
func (c *Cluster) RenewIfDue(ctx context.Context) { c.identity.renewIfDue(ctx) }

// Serial returns the serial number of the node's current certificate.
func (c *Cluster) Serial() string { return c.pair.Load().Leaf.SerialNumber.String() }

// Present makes the node present a certificate for another role or of another
// authority.
func (c *Cluster) Present(ca *pki.CA, role compute.Role) error {
	key, err := pki.NewKey(c.cfg.Rand)
	if err != nil {
		return err
	}
	id := pki.Identity{Cluster: c.clusterID, Role: role, Node: c.id}
	cert, err := ca.Issue(c.cfg.Rand, id, key.Public(), c.cfg.Now())
	if err != nil {
		return err
	}
	c.pair.Store(pki.Pair(cert, key, ca))
	return nil
}

// DialRaft opens a connection to another node as raft does.
func (c *Cluster) DialRaft(id compute.NodeID) (net.Conn, error) {
	return c.layer.Dial(raft.ServerAddress(raftconf.ServerID(id)), 5*time.Second)
}

// DialAs opens a connection to another node for proto.
func (c *Cluster) DialAs(ctx context.Context, id compute.NodeID, proto string) (net.Conn, error) {
	return c.port.dial(ctx, id, proto)
}

// DialTLS is dialTLS.
func DialTLS(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	return transport.DialTLS(ctx, new(net.Dialer).DialContext, address, config)
}

// Behind reports whether this server rejoined with an empty replica and has not
// caught up.
func (c *Cluster) Behind() bool { return c.behind.Load() }

// MayVote reports whether this server could store a vote.
func (c *Cluster) MayVote() bool { return c.replica.Watchdog.MayVote() }

// Reissue issues a new certificate for a server, as a renewal does.
func (c *Cluster) Reissue() error { return c.identity.issueOwn() }

// Snapshot takes a snapshot and retains the entries before it.
func (c *Cluster) Snapshot() error { return c.raft.Snapshot().Error() }

// Metric returns the value of a gauge or a counter without labels.
func Metric(t testing.TB, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
