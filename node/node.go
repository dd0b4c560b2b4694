package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/api/edge"
	"berth/cluster"
	"berth/compute"
	"berth/fault"
	"berth/fsm"
	"berth/fsm/format"
	"berth/gpu"
	"berth/loop"
	"berth/node/archives"
	"berth/node/audit"
	"berth/node/callback"
	"berth/node/config"
	"berth/node/executor"
	"berth/node/executor/sandbox"
	"berth/node/inference/engine"
	"berth/node/inference/meter"
	"berth/node/leader"
	"berth/node/logs"
	"berth/node/logs/archive"
	"berth/node/logs/copies"
	"berth/node/objects"
	"berth/node/progress"
	"berth/node/replication"
	"berth/node/router"
	"berth/node/secrets"
	"berth/node/series"
	"berth/node/storage"
	"berth/node/trees"
	"berth/node/worker"
	"berth/scheduler"
)

// masterKeyFile is the master key, within the data directory.
const masterKeyFile = "keys/master.key"

// Options has the settings of a node that are not in its configuration file.
type Options struct {
	Version string // Version of the binary, as `berth version` prints it.
	Format  uint64 // Newest format of the state that the binary says to know; 0 is format.Newest.
	Build   string
	Logger  *slog.Logger
	Now     func() time.Time // nil for time.Now.
	// PromoteAfter is how long a new server must have kept up before it votes;
	// zero for the cluster's default.
	PromoteAfter time.Duration
	// Ballast is how many bytes are held back for when the disk is full; 0 for
	// the cluster's default, none below 0.
	Ballast int64
	Fatal   func(error) // Ends the process when its disk hangs or lies; nil for os.Exit(1).
	// StopLimit is how long a stop may take before Fatal; zero for 20 seconds.
	StopLimit time.Duration
	// Alone says that the process is this node and nothing else: its memory is
	// bounded, and it leaves no core dumps.
	Alone bool
}

// Node is one peer with all its parts open.
type Node struct {
	cfg    config.Config
	opts   Options
	logger *slog.Logger

	registry     *prometheus.Registry
	machine      *fsm.FSM // The replica; on a worker it stays empty.
	cluster      *cluster.Cluster
	own          *worker.Assignments // The work of this node; on a worker only.
	master       *secrets.Master
	devices      *gpu.Watcher
	environments *environments
	engines      engine.Set
	routes       *router.Router
	dials        dials // Connections to ports on other nodes.
	meter        *meter.Meter
	sampler      *gpu.Sampler
	loads        *gpuLoads
	usages       *gpuUsages
	blobs        *storage.Blobs
	archives     *archives.Cache
	trees        *trees.Cache
	objects      *objects.Store
	s3           *s3Part
	remote       *remotePart
	repairer     *replication.Repairer
	housekeeper  *replication.Housekeeper
	copies       *replication.Copies
	logs         *logs.Store
	series       *series.Store
	recorder     *series.Recorder
	output       *logs.Follower

	outputCopies  *copies.Store
	outputSender  *copies.Sender
	outputArchive *archive.Archive // Nil on workers.

	progress  *progress.Service
	executor  *executor.Executor
	schedule  *scheduler.Loop
	callbacks *callback.Sender
	api       *edge.Server

	auditExport *audit.Export // Nil for none.
	heap        *heapArea     // Nil unless the process is this node alone.
	pace        *pace         // Whether the process rests.

	listener net.Listener // The API's listener.
	metrics  net.Listener // The listener of /metrics, when it has an address of its own.
	urls     urls

	closers []func() error
	stop    stopDeadline
}

// urls are the addresses that this node publishes.
type urls struct{ api, metrics string }

// Run opens a node, runs it until ctx ends and closes it.
func Run(ctx context.Context, cfg config.Config, opts Options) error {
	n, err := Open(ctx, cfg, opts)
	if err != nil {
		return err
	}
	return errors.Join(n.Run(ctx), n.Close())
}

// Open acquires everything a node needs: it makes or joins its cluster, opens
// the listeners and takes over the attempts that still live. Nothing is served
// before Run.
func Open(ctx context.Context, cfg config.Config, opts Options) (_ *Node, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, opts: opts.withDefaults(), registry: prometheus.NewRegistry(), machine: fsm.New()}
	n.pace = newPace()
	if opts.Alone {
		if err := sandbox.LimitCore(); err != nil {
			return nil, fmt.Errorf("set limit of core dumps: %w", err)
		}
		n.heap = reserveHeap()
		loop.Spread()
	}
	n.s3, n.remote = &s3Part{node: n}, &remotePart{node: n}
	n.logger = n.opts.Logger
	n.stop = stopDeadline{limit: n.opts.StopLimit, fatal: n.opts.Fatal}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	for _, open := range n.openers() {
		if err := open(ctx); err != nil {
			return nil, err
		}
	}
	n.logger.Info("node open", "node", n.cluster.ID())
	return n, nil
}

// openers returns the functions that open the parts of a node of this role, in
// order.
func (n *Node) openers() []func(context.Context) error {
	base := []func(context.Context) error{n.openListeners, n.openDevices, n.openCluster}
	if n.isWorker() {
		w := workerNode{n}
		return append(base, w.openOutput, w.openExecutor, w.openAPI)
	}
	return append(base, n.openSecrets, n.openBlobs, n.openOutput, n.openExecutor, n.openScheduler,
		n.openCallbacks, n.openAudit, n.openAPI)
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = func() time.Time { return time.Now().Add(fault.Offset()) } //nolint:forbidigo // The one place.
	}
	if o.Format == 0 {
		o.Format = format.Newest
	}
	if o.StopLimit == 0 {
		o.StopLimit = stopLimit
	}
	if o.Fatal == nil {
		logger := o.Logger
		o.Fatal = func(err error) {
			endProcess(logger, err, os.Exit) //nolint:forbidigo // A process whose disk hangs can do nothing else.
		}
	}
	return o
}

// lastLogWait is how long the log may take to record why the process ends: it may
// be on the disk that hangs.
const lastLogWait = 100 * time.Millisecond

// endProcess ends the process with exit code 1, even if the log hangs.
func endProcess(logger *slog.Logger, err error, exit func(int)) {
	within(lastLogWait, func() { logger.Error("ending the process", "err", err) })
	exit(1)
}

// within does something, and returns after a while although it hangs.
func within(limit time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// Run serves until ctx ends, and then stops gracefully. The first part that
// fails ends the others at once.
func (n *Node) Run(ctx context.Context) error {
	asked := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var parts sync.WaitGroup
	start := func(part string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", part, err))
			}
		})
	}
	// When the node stops, the API ends first and the cluster last, because
	// requests in flight need it.
	clusterCtx, endCluster := context.WithCancel(context.WithoutCancel(ctx))
	defer endCluster()
	var base sync.WaitGroup
	base.Go(func() {
		if err := n.cluster.Run(clusterCtx); err != nil && clusterCtx.Err() == nil {
			cancel(fmt.Errorf("cluster: %w", err))
		}
	})
	// The meter ends after the API and before the cluster: requests in flight are charged.
	meterCtx, endMeter := context.WithCancel(context.WithoutCancel(ctx))
	defer endMeter()
	var metering sync.WaitGroup
	start("devices", n.devices.Run)
	start("sampler", n.sampler.Run)
	start("metrics recorder", n.recorder.Run)
	start("inventory", n.publishInventory)
	start("executor", n.executor.Run)
	start("output copies", outputCopying{n}.run)
	start("deny list", n.updateDenyList)
	start("environments", n.prepareEnvironments)
	start("engine metrics", n.readEngines)
	if n.opts.Alone {
		start("runtime", n.tuneRuntime)
	}
	if n.isWorker() {
		start("announcement", workerNode{n}.announce)
	} else {
		start("announcement", n.announce)
		start("blobs", func(ctx context.Context) error { n.housekeeper.RunSweeps(ctx); return nil })
		start("object store", n.remote.sweep)
		start("migration", n.remote.move)
		start("mirror", n.remote.copyBlobs)
		start("scrub", func(ctx context.Context) error { n.housekeeper.RunScrubs(ctx); return nil })
		start("copies", n.repairBlobs)
		start("leader", n.lead)
		start("backups", n.saveBackups)
		start("output archive", outputArchive{n}.trim)
		start("scaling", modelLoads{n}.scale)
		start("capacity", modelLoads{n}.share)
		metering.Go(func() { _ = n.meter.Run(meterCtx) }) // It has no error.
		start("callbacks", n.sendCallbacks)
		if n.auditExport != nil {
			start("audit export", n.auditExport.Run)
		}
	}
	start("s3", n.s3.serve)
	start("api", func(ctx context.Context) error { return n.api.Serve(ctx, n.listener) })
	if n.metrics != nil {
		start("metrics", n.serveMetrics)
	}
	n.stopGracefully(asked, ctx)
	cancel(nil)
	parts.Wait()
	endMeter()
	metering.Wait()
	endCluster()
	base.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Close undoes Open, the last part first.
func (n *Node) Close() error {
	defer n.stop.end()
	var errs []error
	for len(n.closers) > 0 {
		last := len(n.closers) - 1
		errs = append(errs, n.closers[last]())
		n.closers = n.closers[:last]
	}
	return errors.Join(errs...)
}

// onClose has Close call f.
func (n *Node) onClose(f func() error) { n.closers = append(n.closers, f) }

// ID returns this node's id.
func (n *Node) ID() compute.NodeID { return n.cluster.ID() }

// URL returns the base URL of this node's API.
func (n *Node) URL() string { return n.urls.api }

// IsLeader reports whether this node leads.
func (n *Node) IsLeader() bool { return n.cluster.IsLeader() }

// View returns the newest state that this node has applied.
func (n *Node) View() *fsm.View { return n.machine.View() }

// openListeners opens the API's sockets first, so that their real addresses
// can be published.
func (n *Node) openListeners(ctx context.Context) (err error) {
	var listen net.ListenConfig
	if n.listener, err = listen.Listen(ctx, "tcp", n.cfg.API.Addr); err != nil {
		return fmt.Errorf("open api listener: %w", err)
	}
	n.onClose(ignoreClosed(n.listener.Close))
	scheme := "http"
	if n.cfg.API.TLS.Cert != "" {
		scheme = "https"
	}
	n.urls.api = n.cfg.API.PublicURL
	if n.urls.api == "" {
		n.urls.api = scheme + "://" + reachable(n.listener.Addr(), n.cfg.Advertise)
	}
	if err := n.s3.openListener(ctx); err != nil {
		return err
	}
	n.urls.metrics = n.urls.api + "/metrics"
	if n.cfg.Metrics.Addr == "" {
		return nil
	}
	if n.metrics, err = listen.Listen(ctx, "tcp", n.cfg.Metrics.Addr); err != nil {
		return fmt.Errorf("open metrics listener: %w", err)
	}
	n.onClose(ignoreClosed(n.metrics.Close))
	n.urls.metrics = "http://" + reachable(n.metrics.Addr(), n.cfg.Advertise) + "/metrics"
	return nil
}

// reachable returns the address under which others reach a listener; advertise is the
// configured host, "" for none. It is the machine's own for a listener on all addresses.
func reachable(addr net.Addr, advertise string) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip == nil {
		host = cmp.Or(advertise, host)
	} else if !ip.IsLoopback() {
		if known, err := cluster.AdvertisedHost(advertise, ip); err == nil {
			host = known
		}
	}
	return net.JoinHostPort(host, port)
}

// ignoreClosed returns f without the error of what Run has closed already.
func ignoreClosed(f func() error) func() error {
	return func() error {
		if err := f(); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	}
}

// openSecrets opens the master key. Only the node that makes a cluster makes
// one, before the cluster's first command.
func (n *Node) openSecrets(context.Context) (err error) {
	path := filepath.Join(n.cfg.DataDir, masterKeyFile)
	n.master, err = secrets.Open(path, n.cluster.ClusterID())
	if errors.Is(err, secrets.ErrMissing) && len(n.cfg.Join.Hosts) == 0 {
		if _, statErr := os.Stat(filepath.Join(n.cfg.DataDir, leader.RootTokenFile)); errors.Is(statErr, os.ErrNotExist) {
			n.master, err = secrets.Create(path, n.cluster.ClusterID())
		}
	}
	if err != nil {
		return fmt.Errorf("open master key: %w", err)
	}
	masterKey{n}.handle()
	return nil
}

// SweepObjectStore removes from the object store the blobs older than minAge that no
// object needs: to its trash, and then from there. It returns how many.
func (n *Node) SweepObjectStore(ctx context.Context, minAge time.Duration) (moved, deleted int, err error) {
	return n.remote.sweepOnce(ctx, minAge)
}

// MirrorBlobs copies to the object store the blobs that have no copy there, and once in a
// while removes the copies older than minAge that nothing refers to. It returns how many
// were copied. This node must lead.
func (n *Node) MirrorBlobs(ctx context.Context, minAge time.Duration) (copied int, err error) {
	return n.remote.mirror.Round(ctx, minAge)
}

// SweepBlobs removes from this disk the blobs older than minAge that nothing
// refers to.
func (n *Node) SweepBlobs(ctx context.Context, minAge time.Duration) {
	n.housekeeper.Sweep(ctx, minAge)
}

// RPCAddress returns the address of this node's cluster port.
func (n *Node) RPCAddress() string { return n.cluster.RPCAddress() }

// GossipAddress returns the address of this node's gossip port.
func (n *Node) GossipAddress() string { return n.cluster.Gossip().Address() }
