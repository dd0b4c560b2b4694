package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/boottime"
	"berth/compute"
	"berth/loop"
	"berth/node/executor/cgroup"
	"berth/node/executor/docker"
	"berth/node/executor/packages"
	"berth/node/executor/policy"
	"berth/node/executor/program"
	"berth/node/executor/sandbox"
	"berth/node/executor/scratch"
	"berth/node/executor/supervise"
)

// Source provides the node's live attempts. Work blocks until they change after
// the index, or ctx ends, and returns all of them.
type Source interface {
	Work(ctx context.Context, after uint64) (Assigned, error)
}

// Assigned is the set of live attempts of a node in one state.
type Assigned struct {
	Work  []compute.Work
	Index uint64 // Index of the state.
	Life  uint64 // The state's epoch of the cluster. Indexes may have decreased at its beginning.

	// Contact is the boottime of a contact with the leader at which every attempt
	// in Work was still assigned. The leases of new attempts count from it. While
	// it is 0 no attempt starts: the assignments may be old, and the leader may
	// not have heard from this node since.
	Contact time.Duration
}

// Reporter reports starts, readiness and ends of attempts to the state. A refusal with
// compute.CodeConflict or compute.CodeNotFound is final. After any other error the
// call is retried.
type Reporter interface {
	StartAttempt(ctx context.Context, start compute.AttemptStart) error
	FinishAttempt(ctx context.Context, outcome compute.Outcome) error
	SetReady(ctx context.Context, readiness compute.Readiness) error
}

// Bundles provides the bundles of executions. compute.CodeNotFound means that no
// node has the bundle.
type Bundles interface {
	Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error)
}

// Blobs reads the files of executions, and stores what they leave. The codes of
// its errors are those of package storage.
type Blobs interface {
	// Get returns a manifest, or a chunk that it names.
	Get(ctx context.Context, hash compute.Hash) ([]byte, error)
	// Put returns once data is durable.
	Put(ctx context.Context, data []byte) (compute.Hash, error)
}

// Variables returns the variables that the user of a live attempt keeps for all
// own executions.
type Variables func(ctx context.Context, w compute.Work) ([]compute.EnvVariable, error)

// Meter measures how attempts use their GPUs. Its methods are safe for
// concurrent use and return within a second or two.
type Meter interface {
	// Watch starts measuring an attempt whose code started at from. Each node
	// process calls it at most once per attempt, so it is called again after a
	// restart of the node.
	Watch(w compute.Work, from compute.Instant)
	// Measure stops measuring, and adds the measurements to the outcome's
	// usage if the code ran. It is called once for each attempt, watched or
	// not.
	Measure(outcome *compute.Outcome)
}

// Mount is a directory of the machine that executions may ask for as a volume.
type Mount struct {
	Name     string
	Path     string // On the machine; absolute.
	ReadOnly bool
	Always   bool // Executions have it as /mnt/NAME without asking.
}

// Config has the settings of an Executor. DataDir, Node and the three
// interfaces of Open are required; everything else has a default.
type Config struct {
	DataDir       string
	Node          compute.NodeID
	Python        string               // The interpreter; "" for the machine's python3.
	Packages      Packages             // How the packages are installed that executions ask for.
	SiteDirs      []string             // Added to the module path of executions, read-only.
	Mounts        []Mount              // Volumes of this node.
	Variables     Variables            // Reads the variables of users; nil for none.
	Containers    Containers           // How containers are executed.
	Credentials   Credentials          // For registries of images; nil for none.
	Storage       Storage              // How buckets are mounted.
	Models        Models               // Starts engines of models; nil for none.
	Network       compute.Network      // NetworkNone: no execution on this node gets a network.
	ScratchMiB    int64                // Size of the scratch space; 0 for half the memory limit, in memory.
	ScratchMemory bool                 // Scratch space is in memory, inside the memory limit.
	DenyCIDRs     []netip.Prefix       // The cluster's own addresses. See Deny.
	Contact       func() time.Duration // Boottime of the last contact with the leader; 0 before the first, nil for always.
	StopGrace     time.Duration        // Between SIGTERM and SIGKILL; 0 for DefaultStopGrace.
	ProbeEvery    time.Duration        // Between readiness probes; 0 for supervise.ProbeEvery.
	Requests      Requests             // Ends requests to replicas that are to stop; nil for none.
	DrainWait     time.Duration        // The longest time that a replica waits for the end of its requests.
	HostCPUs      int                  // 0 for all of the machine.
	HostMemoryMiB int64                // 0 for all of the machine.
	Meter         Meter                // Measures GPUs; nil for none.

	// Printing is called with each attempt that begins here or is adopted, before its
	// code prints; nil for none. It returns at once.
	Printing func(compute.ExecutionID, uint64)
	// Retain says how long the output of ended attempts is kept; zero for the defaults.
	Retain Retain
	// Archive archives the output of an ended attempt before it is removed, and reports
	// true once it may be. Nil removes output that is not archived.
	Archive func(ctx context.Context, execution compute.ExecutionID, epoch uint64) (bool, error)

	Blobs      Blobs // Nil: executions have no uploaded files, and their outputs are not kept.
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil for none.
	Now        func() time.Time      // nil for time.Now.
}

// DefaultStopGrace is the time between SIGTERM and SIGKILL.
const DefaultStopGrace = 10 * time.Second

const (
	scratchDirName = "scratch"

	contactEvery  = 2 * time.Second // Interval between reports of leader contact to supervisors.
	maxStarting   = 8               // Attempts prepared concurrently. Others wait.
	callRetryMin  = 50 * time.Millisecond
	callRetryMax  = 15 * time.Second
	bundleTimeout = time.Minute // For the bundle to be found on some node.
	callTimeout   = 30 * time.Second
)

// Executor runs the attempts of one node. Run is called once, and Close after it
// returned.
type Executor struct {
	cfg      Config
	source   Source
	reporter Reporter
	bundles  Bundles
	log      *slog.Logger
	metrics  *metrics
	outbox   *outbox
	pool     *resourcePool
	disks    *scratch.Pool // nil if scratch space is in memory.
	opened   time.Time     // When this process began.

	packages    *packages.Store // nil if packages cannot be installed. Then packagesErr has the reason.
	packagesErr error

	engine         atomic.Pointer[engine] // nil until the engine of this machine has answered.
	engineWatch    *engineWatch
	containerSpare spare
	sandboxSpare   spare
	warm           warmPool

	program   *program.Program // Sandboxes have supervisors of it; nil for this process's own.
	cgroups   *cgroup.Host
	python    *python // nil if there is none. Then pythonErr has the reason.
	pythonErr error
	seccomp   []byte
	landlock  sandbox.Landlock
	baseBinds []sandbox.Bind
	baseLinks []sandbox.Link

	starting chan struct{} // A semaphore of attempts in preparation.
	looking  chan struct{} // Has room for one that looks at the volumes of all executions.
	group    sync.WaitGroup

	mu sync.Mutex

	attempts     map[key]*attempt                       // Attempts that are being prepared or supervised.
	environments map[compute.EnvironmentID]*environment // Those that are prepared.
	prepared     chan struct{}                          // Closed, and replaced, when one is added.
}

// Open checks the machine (kernel, cgroups, interpreter), makes the directories
// and removes the cgroups of attempts whose supervisors are dead. The Executor
// starts nothing before Run. A missing interpreter or network is logged, and
// reported by the executions that need it.
func Open(cfg Config, source Source, reporter Reporter, bundles Bundles) (*Executor, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	if err := checkKernel(); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	e := &Executor{
		containerSpare: spare{command: docker.Command}, sandboxSpare: spare{command: supervise.Command},
		cfg: cfg, source: source, reporter: reporter, bundles: bundles,
		log: cfg.Logger.With("part", "executor"), metrics: newMetrics(cfg.Registerer),
		opened: cfg.Now(), starting: make(chan struct{}, maxStarting), attempts: make(map[key]*attempt),
		environments: make(map[compute.EnvironmentID]*environment), prepared: make(chan struct{}),
		warm: warmPool{started: make(chan *warmKey, 1)}, looking: make(chan struct{}, 1),
	}
	e.engineWatch = &engineWatch{ask: e.askEngine, now: cfg.Now, log: e.log, silent: e.metrics.silent}
	if err := e.open(); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	return e, nil
}

func (e *Executor) open() (err error) {
	if e.cgroups, err = cgroup.Detect(); err != nil {
		return err
	}
	if e.seccomp, err = policy.Seccomp(); err != nil {
		return err
	}
	e.landlock, _ = policy.Landlock()
	gaps, err := Gaps()
	if err != nil {
		return err
	}
	if len(gaps) > 0 {
		e.log.Warn("sandbox has gaps", "reason", gapNames(gaps),
			"hint", "see docs/security.md; cgroup version 2 and Landlock close them")
	}
	if e.python, e.pythonErr = findPython(context.Background(), e.cfg.Python); e.pythonErr != nil {
		e.log.Error("python interpreter missing", "hint", "python executions cannot start here", "err", e.pythonErr)
	} else {
		e.python.log(e.log)
	}
	e.baseBinds, e.baseLinks = baseRoot(e.python, e.cfg.SiteDirs)
	if err := os.MkdirAll(e.attemptsDir(), 0o700); err != nil {
		return err
	}
	if e.outbox, err = openOutbox(filepath.Join(e.cfg.DataDir, outboxDir), e.log); err != nil {
		return err
	}
	e.program = openProgram(e.log)
	e.pool = openPool(e.cfg, e.log)
	e.disks = openDisks(e.cfg, e.log)
	e.openPackages()
	if err := e.openEngine(context.Background()); err != nil {
		e.logNoEngine(err)
	}
	return errors.Join(e.reap(), e.reapStorage(), e.reapContainers(context.Background()))
}

// openProgram returns the program of supervisors, nil where this binary must do. Sandboxes then
// start more slowly.
func openProgram(log *slog.Logger) *program.Program {
	p, err := program.Open()
	switch {
	case errors.Is(err, program.ErrNotEmbedded):
		log.Info("supervisors execute the whole binary", "hint", "it starts more slowly; make build has their program")
	case errors.Is(err, fs.ErrPermission):
		log.Warn("supervisors execute the whole binary", "hint",
			"it starts more slowly; the machine must allow programs in memory (sysctl vm.memfd_noexec)", "err", err)
	case err != nil:
		log.Warn("supervisors execute the whole binary", "hint", "it starts more slowly", "err", err)
	}
	return p
}

// openDisks returns the scratch space of this node, or nil if it is in memory: it was
// configured so, or the machine has no loop devices.
func openDisks(cfg Config, log *slog.Logger) *scratch.Pool {
	if cfg.ScratchMemory || cfg.ScratchMiB == 0 {
		return nil
	}
	disks, err := scratch.Open(context.Background(), filepath.Join(cfg.DataDir, scratchDirName), cfg.ScratchMiB, log)
	if err != nil {
		log.Warn("scratch space is in memory", "hint",
			"space on disk needs loop devices, ext4 and mkfs.ext4; executor.scratch: memory accepts it", "err", err)
		return nil
	}
	return disks
}

// setDefaults sets the defaults of unset fields and checks the rest.
func (c *Config) setDefaults() error {
	if c.DataDir == "" || c.Node.IsZero() {
		return errors.New("no data directory or no node id")
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return err
	}
	c.DataDir = dir
	cpus, memoryMiB, err := machine()
	if err != nil {
		return err
	}
	c.HostCPUs = cmp.Or(c.HostCPUs, cpus)
	c.HostMemoryMiB = cmp.Or(c.HostMemoryMiB, memoryMiB)
	c.StopGrace = cmp.Or(c.StopGrace, DefaultStopGrace)
	c.Retain.Age = cmp.Or(c.Retain.Age, DefaultRetainAge)
	c.Retain.Bytes = cmp.Or(c.Retain.Bytes, DefaultRetainBytes)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Contact == nil {
		c.Contact = boottime.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c.checkPaths()
}

// checkPaths refuses directories that cannot be mounted as configured.
func (c *Config) checkPaths() error {
	for _, dir := range c.SiteDirs {
		if info, err := os.Stat(dir); err != nil || !filepath.IsAbs(dir) || !info.IsDir() || dir == "/" {
			return compute.Errorf(compute.CodeInvalid, "site directory %q is not an absolute path of a directory", dir)
		}
	}
	for _, m := range c.Mounts {
		if _, err := os.Stat(m.Path); err != nil || !filepath.IsAbs(m.Path) || filepath.Clean(m.Path) == "/" {
			return compute.Errorf(compute.CodeInvalid, "mount %q: %q is not an absolute path that exists", m.Name, m.Path)
		}
		if m.Name == "" || m.Name == ".." || m.Name == "." || strings.ContainsAny(m.Name, "/\x00") {
			return compute.Errorf(compute.CodeInvalid, "mount name %q is not one plain name", m.Name)
		}
	}
	return nil
}

// Run adopts the attempts whose supervisors are alive and ends the others
// according to their journals. Then it starts and stops attempts to match the
// Source until ctx ends. Attempts keep running after it.
func (e *Executor) Run(ctx context.Context) error {
	defer e.group.Wait()
	if err := e.adoptAll(ctx); err != nil {
		return fmt.Errorf("run executor: %w", err)
	}
	e.group.Go(func() { e.send(ctx) })
	e.group.Go(func() { e.passContact(ctx) })
	e.group.Go(func() { e.pool.run(ctx) })
	e.group.Go(func() { e.keepWarm(ctx) })
	if e.disks != nil {
		e.group.Go(func() { e.disks.Run(ctx) })
	}
	e.group.Go(func() { e.retain(ctx) })
	if e.cfg.Containers.Host != "" {
		e.group.Go(func() { e.watchEngine(ctx) })
	}
	e.reconcile(ctx)
	return nil
}

// Close releases the resources of Open. Attempts keep running.
func (e *Executor) Close() error {
	if e.disks != nil {
		e.disks.Close()
	}
	e.warm.close()
	e.containerSpare.close()
	e.sandboxSpare.close()
	e.program.Close()
	if engine := e.engine.Load(); engine != nil {
		if e.live() == 0 {
			_ = engine.RemoveIdle(context.Background()) // Networks without containers are harmless.
			e.pool.slots.Disown(e.cfg.Node.String())
		}
		_ = engine.Close()
	}
	return e.pool.close(e.live() == 0)
}

// passContact reports to every supervisor, periodically, when the leader was last
// reached. Supervisors end attempts that are disconnected for too long.
func (e *Executor) passContact(ctx context.Context) {
	loop.Every(ctx, contactEvery, func() {
		last := e.cfg.Contact()
		if last == 0 {
			return
		}
		for _, a := range e.snapshot() {
			a.contact(last)
		}
	})
}

// Deny replaces the addresses of the cluster, which no execution may reach. It
// applies to running attempts too.
func (e *Executor) Deny(prefixes []netip.Prefix) error { return e.pool.deny(prefixes) }

func (e *Executor) live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.attempts)
}

func (e *Executor) snapshot() []*attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.attempts))
}
