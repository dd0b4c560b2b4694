package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/compute"
	"berth/loop"
	"berth/node/executor/cgroup"
	"berth/node/executor/supervise"
)

// contactEvery is the interval between reports of leader contact to supervisors.
const contactEvery = 2 * time.Second

// Executor runs the attempts of one node. Run is called once, and Close after it
// returned.
type Executor struct {
	cfg     Config
	source  Source
	log     *slog.Logger
	metrics *metrics
	group   sync.WaitGroup // Run waits for it.

	dirs   *attemptDirs
	live   *liveAttempts
	groups *groups
	turns  *turns

	// They have what attempts need to start, from their inputs to their supervisors.
	pool         *resourcePool
	supervisors  *supervisors
	warm         *warmer
	installer    *installer
	environments *environments
	containers   *containers
	preparer     *preparer

	// They have what remains of attempts.
	outputs   *outputKeeper
	outbox    *outbox
	reports   *reports
	retention *retention
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
		cfg: cfg, source: source, log: cfg.Logger.With("part", "executor"), metrics: newMetrics(cfg.Registerer),
	}
	if err := e.open(reporter, bundles); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	return e, nil
}

// open makes the parts, those first that others need.
func (e *Executor) open(reporter Reporter, bundles Bundles) error {
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	e.groups = &groups{host: host, node: e.cfg.Node}
	e.dirs = &attemptDirs{root: filepath.Join(e.cfg.DataDir, attemptsDirName), log: e.log}
	e.live = &liveAttempts{gauge: e.metrics.live, attempts: make(map[key]*attempt)}
	e.turns = &turns{taken: make(chan struct{}, maxStarting), dirs: e.dirs, now: e.cfg.Now}
	python, noPython := findPython(context.Background(), e.cfg.Python)
	if noPython != nil {
		e.log.Error("python interpreter missing", "hint", "python executions cannot start here", "err", noPython)
	} else {
		python.log(e.log)
	}
	specs, err := openSpecs(&e.cfg, e.groups, python, e.log)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(e.dirs.root, 0o700); err != nil {
		return err
	}
	if e.outbox, err = openOutbox(filepath.Join(e.cfg.DataDir, outboxDir), e.log); err != nil {
		return err
	}
	calls := &calls{retries: e.metrics.retries}
	e.openResults(reporter, calls)
	e.openResources(bundles, calls, specs, noPython)
	if err := e.containers.open(context.Background()); err != nil {
		e.containers.logNone(err)
	}
	return errors.Join(
		e.reap(), e.preparer.buckets.reap(e.dirs.supervised), e.containers.reap(context.Background()))
}

// openResults makes the parts that have what remains of attempts.
func (e *Executor) openResults(reporter Reporter, calls *calls) {
	e.outputs = &outputKeeper{
		dirs: e.dirs, calls: calls, blobs: e.cfg.Blobs, storage: e.cfg.Storage, log: e.log,
	}
	e.reports = &reports{
		reporter: reporter, outbox: e.outbox, calls: calls, dirs: e.dirs, group: &e.group, log: e.log, metrics: e.metrics,
	}
	e.retention = &retention{
		cfg: &e.cfg, opened: e.cfg.Now(), dirs: e.dirs, log: e.log, reaped: e.metrics.reaped,
	}
}

// openResources makes the parts that have what attempts need to start. noPython says why there is
// no interpreter.
func (e *Executor) openResources(bundles Bundles, calls *calls, specs *specs, noPython error) {
	volumes := openVolumes(e.cfg.Mounts)
	e.supervisors = openSupervisors(e.dirs.root, e.log)
	e.pool = openPool(e.cfg, e.log)
	e.warm = &warmer{
		started: make(chan *warmKey, 1), cfg: &e.cfg, dirs: e.dirs, groups: e.groups, pool: e.pool,
		specs: specs, supervisors: e.supervisors, volumes: volumes, log: e.log,
	}
	e.installer = &installer{
		dirs: e.dirs, groups: e.groups, slots: e.pool.slots, specs: specs, turns: e.turns, now: e.cfg.Now, log: e.log,
	}
	e.installer.open(&e.cfg, e.pool, noPython)
	e.environments = newEnvironments(e.installer, e.turns)
	e.containers = &containers{
		cfg: &e.cfg, calls: calls, turns: e.turns, dirs: e.dirs, live: e.live, groups: e.groups, pool: e.pool,
		volumes: volumes, log: e.log, metrics: e.metrics,
	}
	e.containers.watch = &engineWatch{
		ask: e.containers.ask, now: e.cfg.Now, log: e.log, silent: e.metrics.silent,
	}
	e.preparer = &preparer{
		cfg: &e.cfg, noPython: noPython, dirs: e.dirs,
		inputs: &inputs{calls: calls, bundles: bundles, blobs: e.cfg.Blobs, variables: e.cfg.Variables},
		pool:   e.pool, specs: specs, volumes: volumes, installer: e.installer, environments: e.environments,
		buckets:    &buckets{cfg: &e.cfg, calls: calls, groups: e.groups, volumes: volumes},
		containers: e.containers, supervisors: e.supervisors, warm: e.warm, turns: e.turns, metrics: e.metrics,
	}
}

// Run adopts the attempts whose supervisors are alive and ends the others
// according to their journals. Then it starts and stops attempts to match the
// Source until ctx ends. Attempts keep running after it.
func (e *Executor) Run(ctx context.Context) error {
	defer e.group.Wait()
	if err := e.adoptAll(ctx); err != nil {
		return fmt.Errorf("run executor: %w", err)
	}
	e.group.Go(func() { e.reports.run(ctx) })
	e.group.Go(func() { e.passContact(ctx) })
	e.group.Go(func() { e.pool.run(ctx) })
	e.group.Go(func() { e.warm.run(ctx) })
	if e.pool.disks != nil {
		e.group.Go(func() { e.pool.disks.Run(ctx) })
	}
	e.group.Go(func() { e.retention.run(ctx) })
	if e.cfg.Containers.Host != "" {
		e.group.Go(func() { e.containers.run(ctx) })
	}
	e.reconcile(ctx)
	return nil
}

// Close releases the resources of Open. Attempts keep running.
func (e *Executor) Close() error {
	if e.pool.disks != nil {
		e.pool.disks.Close()
	}
	e.warm.places.close()
	e.supervisors.close()
	e.containers.close(e.live.none())
	return e.pool.close(e.live.none())
}

// passContact reports to every supervisor, periodically, when the leader was last
// reached. Supervisors end attempts that are disconnected for too long.
func (e *Executor) passContact(ctx context.Context) {
	loop.Every(ctx, contactEvery, func() {
		last := e.cfg.Contact()
		if last == 0 {
			return
		}
		for _, a := range e.live.all() {
			a.contact(last)
		}
	})
}

// Deny replaces the addresses of the cluster, which no execution may reach. It
// applies to running attempts too.
func (e *Executor) Deny(prefixes []netip.Prefix) error { return e.pool.deny(prefixes) }

// Engine returns the offers of the Docker engine of this node, none before it has answered
// for the first time, and why it starts no containers at present, "" while it answers.
func (e *Executor) Engine() (offers []compute.Offer, fault string) {
	if e == nil {
		return nil, ""
	}
	return e.containers.offers()
}

// Images returns the offers of the images that this node has pulled and used last.
func (e *Executor) Images() []compute.Offer {
	if e == nil {
		return nil
	}
	return e.containers.images()
}

// Prepare makes an environment ready for executions on this node, and returns the disk
// space that it takes. An error says in the installer's words why that is impossible.
func (e *Executor) Prepare(ctx context.Context, of compute.Environment) (sizeMiB int64, err error) {
	return e.environments.prepare(ctx, of)
}

// Forget removes what Prepare made ready. Executions that use it keep it.
func (e *Executor) Forget(id compute.EnvironmentID) { e.environments.forget(id) }

// Prune removes the directories of ended attempts that exceed the retention limits, once
// their output is archived. Run calls it periodically.
func (e *Executor) Prune(ctx context.Context) error { return e.retention.prune(ctx) }

// MayPrint reports whether an attempt of this node may write more output: its end is
// not in the state yet.
func (e *Executor) MayPrint(execution compute.ExecutionID, epoch uint64) bool {
	k := key{execution, epoch}
	if e.live.get(k) != nil {
		return true
	}
	_, err := e.dirs.reported(k)
	return errors.Is(err, os.ErrNotExist) && !e.dirs.isNew(k)
}

// ModelDir returns the directory of the node that the engine of a live attempt has at
// target. It reports false before that is decided. It is read from the disk: attempts
// outlive the node's process.
func (e *Executor) ModelDir(id compute.ExecutionID, epoch uint64, target string) (dir string, known bool) {
	return e.dirs.source(key{id, epoch}, target)
}

// Ready reports whether the code of a live attempt is ready, as its supervisor says.
func (e *Executor) Ready(id compute.ExecutionID, epoch uint64) bool {
	a := e.live.get(key{id, epoch})
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

// DialPort connects to the port that the code of a live attempt serves.
func (e *Executor) DialPort(id compute.ExecutionID, epoch uint64) (*os.File, error) {
	return supervise.DialPort(e.dirs.of(key{id, epoch}))
}
