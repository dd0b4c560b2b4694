package prepare

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/node/executor/inputs"
	"berth/node/executor/live"
)

// Preparer gives attempts their resources, their directories and their supervisors.
type Preparer struct {
	cfg          *Config
	noPython     error // Says why there is no interpreter.
	dirs         *live.Dirs
	inputs       *inputs.Inputs
	pool         *resourcePool
	specs        *specs
	volumes      *volumes
	installer    *installer
	environments *environments
	buckets      *buckets
	containers   *containers
	supervisors  *supervisors
	warm         *warmer
	turns        *live.Turns
	metrics      *metrics
}

// Parts are what a preparer shares with those who follow the attempts.
type Parts struct {
	Dirs    *live.Dirs
	Live    *live.Attempts
	Groups  *live.Groups
	Turns   *live.Turns
	Calls   *live.Calls
	Bundles inputs.Bundles
	Reaped  *prometheus.CounterVec // Counts by kind what is removed of ended attempts.
}

// Open makes the parts, those first that others need. A missing interpreter, network or engine
// is logged, and reported by the executions that need it. The caller has called
// cfg.SetDefaults, and does not change cfg afterwards.
func Open(cfg *Config, with Parts) (*Preparer, error) {
	python, noPython := findPython(context.Background(), cfg.Python)
	if noPython != nil {
		cfg.Logger.Error("python interpreter missing", "hint", "python executions cannot start here", "err", noPython)
	} else {
		python.log(cfg.Logger)
	}
	specs, err := openSpecs(cfg, with.Groups, python, cfg.Logger)
	if err != nil {
		return nil, err
	}
	p := &Preparer{
		cfg: cfg, noPython: noPython, dirs: with.Dirs, specs: specs, turns: with.Turns, metrics: newMetrics(cfg.Registerer),
		inputs:  inputs.New(with.Calls, with.Bundles, cfg.Blobs, cfg.Variables),
		volumes: openVolumes(cfg.Mounts), supervisors: openSupervisors(with.Dirs.Root, cfg.Logger),
		pool: openPool(cfg, cfg.Logger),
	}
	p.open(with)
	if err := p.containers.open(context.Background()); err != nil {
		p.containers.logNone(err)
	}
	return p, nil
}

// open makes the parts that need others.
func (p *Preparer) open(with Parts) {
	p.warm = &warmer{
		started: make(chan *warmKey, 1), cfg: p.cfg, dirs: p.dirs, groups: with.Groups, pool: p.pool,
		specs: p.specs, supervisors: p.supervisors, volumes: p.volumes, log: p.cfg.Logger,
	}
	p.installer = &installer{
		dirs: p.dirs, groups: with.Groups, slots: p.pool.slots, specs: p.specs, turns: p.turns,
		now: p.cfg.Now, log: p.cfg.Logger,
	}
	p.installer.open(p.cfg, p.pool, p.noPython)
	p.environments = newEnvironments(p.installer, p.turns)
	p.buckets = &buckets{cfg: p.cfg, calls: with.Calls, groups: with.Groups, volumes: p.volumes}
	p.containers = &containers{
		cfg: p.cfg, calls: with.Calls, turns: p.turns, dirs: p.dirs, live: with.Live, groups: with.Groups, pool: p.pool,
		volumes: p.volumes, log: p.cfg.Logger, silent: p.metrics.silent, reaped: with.Reaped,
	}
	p.containers.watch = &engineWatch{
		ask: p.containers.ask, now: p.cfg.Now, log: p.cfg.Logger, silent: p.metrics.silent,
	}
}

// Reap removes what ended attempts left in mounts and on the Docker engine.
func (p *Preparer) Reap(ctx context.Context) error {
	return errors.Join(p.buckets.reap(p.dirs.Supervised), p.containers.reap(ctx))
}

// Run keeps ready what attempts need, until ctx ends.
func (p *Preparer) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { p.pool.run(ctx) })
	group.Go(func() { p.warm.run(ctx) })
	if p.pool.disks != nil {
		group.Go(func() { p.pool.disks.Run(ctx) })
	}
	if p.cfg.Containers.Host != "" {
		group.Go(func() { p.containers.run(ctx) })
	}
}

// Close releases what no attempt has. Idle says that none lives: then nothing stays for them.
func (p *Preparer) Close(idle bool) error {
	if p.pool.disks != nil {
		p.pool.disks.Close()
	}
	p.warm.places.close()
	p.supervisors.close()
	p.containers.close(idle)
	return p.pool.close(idle)
}

// HasPython reports whether this node has an interpreter.
func (p *Preparer) HasPython() bool { return p.noPython == nil }

// Deny replaces the addresses of the cluster, which no execution may reach. It
// applies to running attempts too.
func (p *Preparer) Deny(prefixes []netip.Prefix) error { return p.pool.deny(prefixes) }

// UsesGroup reports whether a cgroup is that of an attempt that lives, though it does not have its name.
func (p *Preparer) UsesGroup(name string) bool { return p.warm.uses(name) }

// DropContainers removes the containers of an attempt whose supervisor is dead.
func (p *Preparer) DropContainers(k live.Key) { p.containers.drop(k) }

// Engine returns the offers of the Docker engine of this node, none before it has answered
// for the first time, and why it starts no containers at present, "" while it answers.
func (p *Preparer) Engine() (offers []compute.Offer, fault string) { return p.containers.offers() }

// Images returns the offers of the images that this node has pulled and used last.
func (p *Preparer) Images() []compute.Offer { return p.containers.images() }

// PrepareEnvironment makes an environment ready for executions on this node, and returns the disk
// space that it takes. An error says in the installer's words why that is impossible.
func (p *Preparer) PrepareEnvironment(ctx context.Context, of compute.Environment) (sizeMiB int64, err error) {
	return p.environments.prepare(ctx, of)
}

// ForgetEnvironment removes what PrepareEnvironment made ready. Executions that use it keep it.
func (p *Preparer) ForgetEnvironment(id compute.EnvironmentID) { p.environments.forget(id) }
