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
	"berth/node/executor/inputs"
	"berth/node/executor/live"
	"berth/node/executor/prepare"
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

	dirs   *live.Dirs
	live   *live.Attempts
	groups *live.Groups
	turns  *live.Turns

	preparer *prepare.Preparer

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
func Open(cfg Config, source Source, reporter Reporter, bundles inputs.Bundles) (*Executor, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	e := &Executor{
		cfg: cfg, source: source, log: cfg.Logger, metrics: newMetrics(cfg.Registerer),
	}
	if err := e.open(reporter, bundles); err != nil {
		return nil, fmt.Errorf("open executor: %w", err)
	}
	return e, nil
}

// open makes the parts, those first that others need.
func (e *Executor) open(reporter Reporter, bundles inputs.Bundles) error {
	host, err := cgroup.Detect()
	if err != nil {
		return err
	}
	e.groups = live.NewGroups(host, e.cfg.Node)
	e.dirs = live.NewDirs(e.cfg.DataDir, e.log)
	e.live = live.NewAttempts(e.metrics.live)
	e.turns = live.NewTurns(e.dirs, e.cfg.Now)
	if err := os.MkdirAll(e.dirs.Root, 0o700); err != nil {
		return err
	}
	if e.outbox, err = openOutbox(filepath.Join(e.cfg.DataDir, outboxDir), e.log); err != nil {
		return err
	}
	calls := live.NewCalls(e.metrics.retries)
	e.openResults(reporter, calls)
	e.preparer, err = prepare.Open(&e.cfg.Config, prepare.Parts{
		Dirs: e.dirs, Live: e.live, Groups: e.groups, Turns: e.turns, Calls: calls, Bundles: bundles,
		Reaped: e.metrics.reaped,
	})
	if err != nil {
		return err
	}
	return errors.Join(e.reap(), e.preparer.Reap(context.Background()))
}

// openResults makes the parts that have what remains of attempts.
func (e *Executor) openResults(reporter Reporter, calls *live.Calls) {
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
	e.group.Go(func() { e.preparer.Run(ctx) })
	e.group.Go(func() { e.retention.run(ctx) })
	e.reconcile(ctx)
	return nil
}

// Close releases the resources of Open. Attempts keep running.
func (e *Executor) Close() error {
	return e.preparer.Close(e.live.None())
}

// passContact reports to every supervisor, periodically, when the leader was last
// reached. Supervisors end attempts that are disconnected for too long.
func (e *Executor) passContact(ctx context.Context) {
	loop.Every(ctx, contactEvery, func() {
		last := e.cfg.Contact()
		if last == 0 {
			return
		}
		for _, a := range e.live.All() {
			a.Contact(last)
		}
	})
}

// Deny replaces the addresses of the cluster, which no execution may reach. It
// applies to running attempts too.
func (e *Executor) Deny(prefixes []netip.Prefix) error { return e.preparer.Deny(prefixes) }

// Engine returns the offers of the Docker engine of this node, none before it has answered
// for the first time, and why it starts no containers at present, "" while it answers.
func (e *Executor) Engine() (offers []compute.Offer, fault string) {
	if e == nil {
		return nil, ""
	}
	return e.preparer.Engine()
}

// Images returns the offers of the images that this node has pulled and used last.
func (e *Executor) Images() []compute.Offer {
	if e == nil {
		return nil
	}
	return e.preparer.Images()
}

// Prepare makes an environment ready for executions on this node, and returns the disk
// space that it takes. An error says in the installer's words why that is impossible.
func (e *Executor) Prepare(ctx context.Context, of compute.Environment) (sizeMiB int64, err error) {
	return e.preparer.PrepareEnvironment(ctx, of)
}

// Forget removes what Prepare made ready. Executions that use it keep it.
func (e *Executor) Forget(id compute.EnvironmentID) { e.preparer.ForgetEnvironment(id) }

// Prune removes the directories of ended attempts that exceed the retention limits, once
// their output is archived. Run calls it periodically.
func (e *Executor) Prune(ctx context.Context) error { return e.retention.prune(ctx) }

// MayPrint reports whether an attempt of this node may write more output: its end is
// not in the state yet.
func (e *Executor) MayPrint(execution compute.ExecutionID, epoch uint64) bool {
	k := live.Key{Execution: execution, Epoch: epoch}
	if e.live.Get(k) != nil {
		return true
	}
	_, err := e.dirs.Reported(k)
	return errors.Is(err, os.ErrNotExist) && !e.dirs.IsNew(k)
}

// ModelDir returns the directory of the node that the engine of a live attempt has at
// target. It reports false before that is decided. It is read from the disk: attempts
// outlive the node's process.
func (e *Executor) ModelDir(id compute.ExecutionID, epoch uint64, target string) (dir string, known bool) {
	return e.dirs.Source(live.Key{Execution: id, Epoch: epoch}, target)
}

// Ready reports whether the code of a live attempt is ready, as its supervisor says.
func (e *Executor) Ready(id compute.ExecutionID, epoch uint64) bool {
	a := e.live.Get(live.Key{Execution: id, Epoch: epoch})
	return a != nil && a.IsReady()
}

// DialPort connects to the port that the code of a live attempt serves.
func (e *Executor) DialPort(id compute.ExecutionID, epoch uint64) (*os.File, error) {
	return supervise.DialPort(e.dirs.Dir(live.Key{Execution: id, Epoch: epoch}))
}
