package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/cluster/pki"
	"berth/cluster/rpc"
	"berth/compute"
)

// transferTimeout bounds the one attempt to hand leadership over at a stop.
const transferTimeout = 3 * time.Second

// Cluster is an open peer. Its methods may be called from any goroutine.
type Cluster struct {
	cfg       Config
	logger    *slog.Logger
	metrics   *metrics
	codec     rpc.Codec
	files     *files
	id        compute.NodeID
	clusterID compute.UUID
	ca        *pki.CA
	pair      atomic.Pointer[tls.Certificate]
	fatalOnce sync.Once

	transferred atomic.Bool // Leadership was tried to be given away.

	listener  net.Listener
	advertise string // host:port of the cluster port, as others reach it.
	server    *rpc.Server
	links     links
	layer     *raftLayer

	raft      *raft.Raft
	transport *raft.NetworkTransport
	store     *disk.Log
	watchdog  *disk.Watchdog
	logs      *disk.Cache
	snapshots raft.SnapshotStore
	leaders   *leaderWatch
	terms     *terms
	proposals *proposals
	reads     *rounds

	heartbeats *heartbeats
	gossip     *gossip
	joins      *joinLimit

	closed    chan struct{}
	closeOnce sync.Once
	work      group // What outlives one call: connections, batches, rounds.
}

// Open takes the node's place in the cluster: it reads or makes its identity,
// which on a new node means making the cluster or joining one, opens the
// ports and starts Raft. The peer takes part from Run on. ctx bounds joining,
// which is repeated until it succeeds or is refused for a reason that a
// repeat does not change.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := newCluster(cfg)
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// newCluster wires the parts that hold no file and no socket.
func newCluster(cfg Config) *Cluster {
	c := &Cluster{
		cfg:     cfg,
		logger:  cfg.Logger.With("part", "cluster"),
		codec:   rpc.NewCodec(),
		metrics: newMetrics(cfg.Registerer),
		closed:  make(chan struct{}),
		joins:   newJoinLimit(),
	}
	c.links.open = c.openLink
	c.server = &rpc.Server{Codec: c.codec, Logger: c.logger, Allow: c.allow, Done: c.metrics.call}
	c.leaders = newLeaderWatch()
	c.terms = newTerms()
	c.proposals = newProposals(c)
	c.reads = &rounds{spawn: c.work.Go, do: c.readRound}
	c.heartbeats = newHeartbeats(c)
	c.gossip = newGossip(c)
	c.handleOwn()
	return c
}

// open acquires files and sockets in the order in which they need each other.
func (c *Cluster) open(ctx context.Context) (err error) {
	if c.files, err = openFiles(c.cfg.DataDir); err != nil {
		return err
	}
	if err := c.listen(ctx); err != nil {
		return err
	}
	if err := c.gossip.listen(); err != nil {
		return err
	}
	fresh, err := c.takeIdentity(ctx)
	if err != nil {
		return err
	}
	if err := c.openRaft(fresh); err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	return c.gossip.open()
}

// listen opens the cluster port.
func (c *Cluster) listen(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.cfg.Listen)
	if err != nil {
		return fmt.Errorf("open cluster port: %w", err)
	}
	c.listener = listener
	host, err := advertisedHost(c.cfg.Advertise, listener.Addr().(*net.TCPAddr).IP)
	if err != nil {
		return err
	}
	c.advertise = joinPort(host, listener.Addr().(*net.TCPAddr).Port)
	return nil
}

// handleOwn registers the methods that nodes call of each other by
// themselves.
func (c *Cluster) handleOwn() {
	c.server.Handle(methodJoin, c.handleJoin)
	c.server.Handle(methodPropose, c.handlePropose)
	c.server.Handle(methodReadIndex, c.handleReadIndex)
	c.server.Handle(methodStatus, c.handleStatus)
	c.server.Handle(methodHeartbeat, c.heartbeats.handle)
	c.server.Handle(methodInventory, c.gossip.handleInventory)
}

// The methods that this package serves.
const (
	methodJoin      = "cluster.join"
	methodPropose   = "cluster.propose"
	methodReadIndex = "cluster.read_index"
	methodStatus    = "cluster.status"
	methodHeartbeat = "cluster.heartbeat"
	methodInventory = "cluster.inventory"
)

// serverMethods are those that only a server may call.
func serverMethods() []string {
	return []string{methodPropose, methodReadIndex, methodStatus}
}

// voterMethods are those that a server that was removed may call as long as
// it votes.
func voterMethods() []string {
	return []string{methodStatus, methodHeartbeat}
}

// Run takes part until ctx ends or the node is removed. At its end it hands
// leadership over, once, so that the others need no election.
func (c *Cluster) Run(ctx context.Context) error {
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context) error{
		c.serve, c.watchDisk, c.leaders.run, c.lead, c.heartbeats.run,
		c.gossip.run, c.gossip.rejoin, c.renew, c.tendMembers, c.rememberPeers,
	} {
		loops.Go(func() {
			if err := loop(inner); err != nil {
				stop(err)
			}
		})
	}
	select {
	case <-ctx.Done():
		c.handOver()
	case <-inner.Done():
	}
	stop(nil)
	loops.Wait()
	if err := context.Cause(inner); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// handOver gives leadership away if this node has it.
func (c *Cluster) handOver() {
	if !c.IsLeader() || len(c.servers()) < 2 {
		return
	}
	if err := c.transferOnce(func() raft.Future { return c.raft.LeadershipTransfer() }); err != nil {
		c.logger.Warn("leadership not handed over", "err", err)
	}
}

// transferOnce has begin start a transfer of leadership and waits for its end.
// It is tried once in the life of the process: a second try at a stuck
// follower could leave raft refusing every entry (hashicorp/raft issue 696).
func (c *Cluster) transferOnce(begin func() raft.Future) error {
	if c.transferred.Swap(true) {
		return errors.New("leadership was tried to be handed over before")
	}
	done := make(chan error, 1)
	go func() { done <- begin().Error() }()
	timer := time.NewTimer(transferTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return fmt.Errorf("no answer within %s", transferTimeout)
	}
}

// Close stops Raft and closes files and sockets. Call it after Run returned.
// The node stays a member: a restart is no leave.
func (c *Cluster) Close() error {
	var errs []error
	c.closeOnce.Do(func() {
		close(c.closed)
		if c.listener != nil {
			c.listener.Close() // Run has closed it already, as a rule.
		}
		errs = append(errs, c.gossip.close())
		if c.raft != nil {
			errs = append(errs, c.raft.Shutdown().Error())
		}
		if c.transport != nil {
			errs = append(errs, c.transport.Close())
			c.transport.CloseStreams()
		}
		c.links.closeAll()
		c.work.wait()
		if c.store != nil {
			errs = append(errs, c.store.Close())
		}
		if c.files != nil {
			errs = append(errs, c.files.close())
		}
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close cluster: %w", err)
	}
	return nil
}

// fatal reports, once, that the process must end.
func (c *Cluster) fatal(err error) {
	c.fatalOnce.Do(func() { c.cfg.Fatal(err) }) // It logs: a log may be on the disk that hangs.
}

// watchDisk looks after writes that hang.
func (c *Cluster) watchDisk(ctx context.Context) error {
	ticker := time.NewTicker(disk.WatchTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			limit := disk.AppendLimitFollower
			if c.raft.State() == raft.Leader {
				limit = disk.AppendLimitLeader
			}
			if err := c.watchdog.Look(now, limit); err != nil {
				c.fatal(err)
				return err
			}
		}
	}
}

// ID returns the node's id.
func (c *Cluster) ID() compute.NodeID { return c.id }

// ClusterID returns the cluster's id.
func (c *Cluster) ClusterID() compute.UUID { return c.clusterID }

// CA returns the cluster's authority, for join tokens.
func (c *Cluster) CA() *pki.CA { return c.ca }

// RPCAddress returns host:port of the cluster port as others reach it.
func (c *Cluster) RPCAddress() string { return c.advertise }

// GossipAddress returns host:port of the gossip port as others reach it.
func (c *Cluster) GossipAddress() string { return c.gossip.advertise }

// NewJoinToken makes a token for this cluster. Its text is shown once; the
// state keeps its ID and SecretHash.
func (c *Cluster) NewJoinToken() (pki.JoinToken, error) {
	return pki.NewJoinToken(c.cfg.Rand, c.ca)
}
