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

	"berth/cluster/clock"
	"berth/cluster/datadir"
	"berth/cluster/gossip"
	"berth/cluster/liblog"
	"berth/cluster/pki"
	"berth/cluster/raftconf"
	"berth/cluster/replica"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
)

// Cluster is an open node. Its methods may be called from any goroutine.
type Cluster struct {
	cfg       Config
	logger    *slog.Logger
	metrics   *metrics
	codec     rpc.Codec
	dir       *datadir.Dir
	replica   *replica.Replica // Nil on a worker.
	comparer  *replica.Comparer
	id        compute.NodeID
	clusterID compute.UUID
	ca        *pki.CA
	pair      atomic.Pointer[tls.Certificate]
	fatalOnce sync.Once

	profile       string        // Profile of Raft's timers; set before Raft runs.
	behind        atomic.Bool   // This server rejoined with an empty replica and has not caught up.
	leaderTimeout time.Duration // Time after which a server that is behind knows no leader; set before Raft runs.

	transferred atomic.Bool // This process has tried to transfer leadership.
	refusals    refusals

	listener        net.Listener
	advertise       string // host:port of the cluster port, as others reach it.
	server          *rpc.Server
	callers         map[string]Callers // Allowed callers of each method; written before Run.
	links           *transport.Links   // Connections for calls.
	streams         *transport.Links   // Connections for streams: a call must not wait for their data.
	unauthenticated unauthenticatedConns
	refusedLog      liblog.Sampler
	layer           *transport.Layer

	reloading sync.Mutex // Held by reloadRaft.

	raft         *raft.Raft
	transport    *raft.NetworkTransport
	commits      *transport.Outbound
	space        *diskSpace
	diskHandOver diskHandOver
	leaders      *leaderWatch
	terms        *terms
	proposals    *proposals
	reads        *rounds

	heartbeats *heartbeats
	gossip     *gossip.Gossip
	joins      *joinLimit
	clock      *clock.Clock
	upstream   *upstream // Only a worker has one.

	port         port
	members      members
	joiner       joiner
	rejoiner     rejoiner
	identity     identity
	reader       reader
	proposer     proposer
	epochGuard   epochGuard
	transfers    transfers
	hungDisk     hungDisk
	catchUp      catchUp
	leadership   leadership
	workerCalls  workerCalls
	healthReport healthReport
	raftNode     raftNode

	epochs    epochs
	closed    chan struct{} // Closed when Close begins,
	down      chan struct{} // and once raft has ended.
	closeOnce sync.Once
	work      group // Goroutines that outlive one call: connections, batches, rounds.
}

// Open loads or makes the node's identity, opens the ports and starts Raft. A new
// node makes the cluster or joins one. The node takes part once Run is called.
// ctx bounds joining, which is retried until it succeeds or is refused for a
// permanent reason.
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

// newCluster wires the parts. It opens no file and no socket.
func newCluster(cfg Config) *Cluster {
	c := &Cluster{
		cfg:     cfg,
		logger:  cfg.Logger.With("part", "cluster"),
		codec:   rpc.NewCodec(),
		metrics: newMetrics(cfg.Registerer),
		closed:  make(chan struct{}),
		down:    make(chan struct{}),
		epochs:  epochs{outlive: make(chan uint64, 1)},
		joins:   newJoinLimit(),
		callers: make(map[string]Callers),
	}
	c.port, c.members, c.identity, c.raftNode = port{c}, members{c}, identity{c}, raftNode{c}
	c.joiner, c.rejoiner, c.catchUp, c.epochGuard = joiner{c}, rejoiner{c}, catchUp{c}, epochGuard{c}
	c.reader, c.proposer, c.leadership, c.transfers = reader{c}, proposer{c}, leadership{c}, transfers{c}
	c.hungDisk, c.workerCalls, c.healthReport = hungDisk{c}, workerCalls{c}, healthReport{c}
	c.upstream = newUpstream(c)
	c.links, c.streams = transport.NewLinks(c.port.openLink), transport.NewLinks(c.port.openLink)
	c.server = &rpc.Server{Codec: c.codec, Logger: c.logger, Allow: c.port.allow, Done: c.metrics.call}
	c.leaders = newLeaderWatch()
	c.terms = newTerms()
	c.proposals = newProposals(c)
	c.reads = &rounds{spawn: c.work.Go, do: c.reader.readRound}
	c.heartbeats = newHeartbeats(c)
	c.clock = clock.New(clock.Config{
		Local: cfg.Now, Logger: c.logger, Ahead: c.metrics.ahead, Voters: c.members.voterClocks,
	})
	c.gossip = gossip.New(gossip.Config{
		Listen: cfg.GossipListen, Name: cfg.Name, Role: cfg.Role, API: cfg.API, Metrics: cfg.Metrics, Version: cfg.Version,
		AdvertisedHost: func(ip net.IP) (string, error) { return AdvertisedHost(cfg.Advertise, ip) },
		Rand:           cfg.Rand, Codec: c.codec, Logger: c.logger, Closed: c.closed, Alive: c.metrics.seen,
		Servers: c.members.serverIDs, Lookup: c.members.lookup,
	})
	c.space = newDiskSpace(c)
	c.handleOwn()
	return c
}

// open opens files and sockets in the order of their dependencies. A worker has
// no replica.
func (c *Cluster) open(ctx context.Context) (err error) {
	if c.dir, err = datadir.Open(c.cfg.DataDir); err != nil {
		return err
	}
	if err := c.listen(ctx); err != nil {
		return err
	}
	if err := c.gossip.Listen(c.dir); err != nil {
		return err
	}
	if err := errors.Join(replica.CheckFinished(c.dir), replica.CheckTrusted(c.dir, c.cfg.Now())); err != nil {
		return err
	}
	fresh, err := c.identity.takeIdentity(ctx)
	if err != nil {
		return err
	}
	if !c.isWorker() {
		c.raftNode.newReplica()
		if fresh, err = c.epochGuard.leaveOldEpoch(ctx, fresh); err != nil {
			return err
		}
		if err := c.raftNode.openRaft(ctx, fresh); err != nil {
			return err
		}
	}
	if err := c.identity.settle(); err != nil {
		return err
	}
	return c.gossip.Open(gossip.Identity{Node: c.id, Cluster: c.clusterID, RPC: c.advertise})
}

// listen opens the cluster port.
func (c *Cluster) listen(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", c.cfg.Listen)
	if err != nil {
		return fmt.Errorf("open cluster port: %w", err)
	}
	c.listener = listener
	host, err := AdvertisedHost(c.cfg.Advertise, listener.Addr().(*net.TCPAddr).IP)
	if err != nil {
		return err
	}
	c.advertise = joinPort(host, listener.Addr().(*net.TCPAddr).Port)
	return nil
}

// voterMethods are the methods that a removed server may call while it still
// votes.
func voterMethods() []string {
	return []string{methodStatus, methodHeartbeat}
}

// Run takes part in the cluster until ctx ends or the node is removed. Then it
// transfers leadership, unless this process has tried that before, so that the
// other servers need no election.
func (c *Cluster) Run(ctx context.Context) error {
	inner, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	if !c.isWorker() {
		c.raftNode.leadAlone()
	}
	var loops sync.WaitGroup
	for _, loop := range c.loops() {
		loops.Go(func() {
			if err := loop(inner); err != nil {
				stop(err)
			}
		})
	}
	select {
	case <-ctx.Done():
		c.HandOver()
	case <-inner.Done():
	}
	stop(nil)
	loops.Wait()
	if err := context.Cause(inner); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// loops returns the loops that Run runs.
func (c *Cluster) loops() []func(context.Context) error {
	all := []func(context.Context) error{
		c.port.serve, c.heartbeats.run, c.gossip.Run, c.gossip.Rejoin, c.identity.renew,
	}
	if c.isWorker() {
		return append(all, c.upstream.run)
	}
	return append(all, c.hungDisk.watchDisk, c.space.run, c.leaders.run, c.leadership.lead,
		c.members.manage, c.members.rememberPeers,
		c.transfers.watchTransfer, c.epochGuard.awaitOutlived, c.scrub, c.comparer.Run)
}

// Close stops Raft and closes files and sockets. Call it after Run has returned.
// The node stays a member: a restart is not a leave.
func (c *Cluster) Close() error {
	var errs []error
	c.closeOnce.Do(func() {
		close(c.closed)
		if c.listener != nil {
			c.listener.Close() // Usually closed by Run already.
		}
		errs = append(errs, c.gossip.Close())
		if c.hasReplica() && c.replica.Log.Starved() {
			errs = append(errs, errStarved)
			return // Raft waits for free space: only the end of the process ends that.
		}
		if c.raft != nil {
			c.commits.WaitForBeats()
			errs = append(errs, c.raft.Shutdown().Error())
			close(c.down)
		}
		if c.transport != nil {
			errs = append(errs, c.transport.Close())
			c.transport.CloseStreams()
		}
		c.links.Close()
		c.streams.Close()
		c.work.wait()
		if c.hasReplica() {
			errs = append(errs, c.replica.Log.Close())
		}
		if c.dir != nil {
			errs = append(errs, c.dir.Close())
		}
	})
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close cluster: %w", err)
	}
	return nil
}

// fatal reports, once, that the process must end.
func (c *Cluster) fatal(err error) {
	c.fatalOnce.Do(func() { c.cfg.Fatal(err) }) // Fatal logs, and the log may be on the hung disk.
}

// hasReplica reports whether the files of a replica are open.
func (c *Cluster) hasReplica() bool { return c.replica != nil && c.replica.Log != nil }

// Replica returns the replica of this server.
func (c *Cluster) Replica() *replica.Replica { return c.replica }

// scrub checks the replica for damage at intervals.
func (c *Cluster) scrub(ctx context.Context) error { return c.replica.Scrub(ctx, c.cfg.ScrubEvery) }

// ID returns the node's id.
func (c *Cluster) ID() compute.NodeID { return c.id }

// ClusterID returns the cluster's id.
func (c *Cluster) ClusterID() compute.UUID { return c.clusterID }

// CA returns the cluster's certificate authority, for join tokens.
func (c *Cluster) CA() *pki.CA { return c.ca }

// RPCAddress returns host:port of the cluster port as others reach it.
func (c *Cluster) RPCAddress() string { return c.advertise }

// Gossip returns this node's part in the gossip of the cluster.
func (c *Cluster) Gossip() *gossip.Gossip { return c.gossip }

// serverIDs returns the servers in the configuration.
func (c members) serverIDs() []compute.NodeID {
	var ids []compute.NodeID
	for _, s := range c.Servers() {
		ids = append(ids, s.ID)
	}
	return ids
}

// lookup reports whether a node was removed, and whether the state or the Raft
// configuration knows it.
func (c members) lookup(id compute.NodeID) (removed, known bool) {
	_, removed, known = c.cfg.Directory.Node(id)
	return removed, known || raftconf.Contains(c.servers(), id)
}

// PullInventory asks a node for its inventory over an authenticated connection.
// The error is CodeNotFound when the node has none yet.
func (c *Cluster) PullInventory(ctx context.Context, node compute.NodeID) (compute.Inventory, error) {
	var inv compute.Inventory
	body, err := c.Call(ctx, node, methodInventory, nil)
	if err != nil {
		return inv, err
	}
	if err := c.codec.Unmarshal(body, &inv); err != nil {
		return inv, err
	}
	if inv.Node != node {
		return inv, fmt.Errorf("pull inventory: node %s sent the one of %s", node, inv.Node)
	}
	return inv, nil
}

// NewJoinToken makes a token for this cluster. Its text is shown once; the
// state keeps its ID and SecretHash.
func (c *Cluster) NewJoinToken() (pki.JoinToken, error) {
	return pki.NewJoinToken(c.cfg.Rand, c.ca)
}
