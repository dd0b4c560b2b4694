package node

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"berth/compute"
	"berth/loop"
	"berth/node/worker"
)

// Times of environments.
const (
	environmentsPeriod  = 2 * time.Second  // How often a node checks what it prepares.
	workerEnvironments  = 5 * time.Second  // The same of a worker, which asks a server.
	environmentTimeout  = 10 * time.Second // For one report.
	environmentRetryMin = time.Minute      // Until a failed preparation is tried again; doubled each time.
	environmentRetryMax = time.Hour
)

// environmentSource tells a node what it prepares, and takes its reports.
type environmentSource interface {
	List(ctx context.Context) ([]compute.Environment, error)
	Report(ctx context.Context, report worker.EnvironmentReport) error
}

// preparer makes environments ready: the executor.
type preparer interface {
	Prepare(ctx context.Context, of compute.Environment) (sizeMiB int64, err error)
	Forget(id compute.EnvironmentID)
}

// environments keeps the named environments of this node ready.
type environments struct {
	log     *slog.Logger
	changed func(ctx context.Context) // Called when the offers change.
	one     chan struct{}             // One at a time is prepared.

	mu sync.Mutex

	tasks map[compute.EnvironmentID]*environmentTask
}

// environmentTask prepares one environment.
type environmentTask struct {
	cancel context.CancelFunc
	done   chan struct{}
	state  compute.NodeEnvironment // Guarded by the mutex of environments.
}

func newEnvironments(log *slog.Logger) *environments {
	return &environments{
		log: log, one: make(chan struct{}, 1), tasks: make(map[compute.EnvironmentID]*environmentTask),
	}
}

// Offers returns the offers of what is ready, sorted.
func (p *environments) Offers() []compute.Offer {
	p.mu.Lock()
	defer p.mu.Unlock()
	var offers []compute.Offer
	for id, task := range p.tasks {
		if task.state.Status == compute.EnvironmentReady {
			offers = append(offers, compute.EnvironmentOffer(id.String()))
		}
	}
	slices.Sort(offers)
	return offers
}

// run prepares what source lists, until ctx ends.
func (p *environments) run(ctx context.Context, period time.Duration, source environmentSource, by preparer) {
	defer func() {
		for _, task := range p.tasks {
			<-task.done // They end with ctx.
		}
	}()
	loop.Every(ctx, period, func() {
		all, err := source.List(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.log.Debug("environments not listed", "err", err)
			}
			return
		}
		p.follow(ctx, all, by)
		p.report(ctx, all, source)
	})
}

// follow starts new environments, and ends those that are gone.
func (p *environments) follow(ctx context.Context, all []compute.Environment, by preparer) {
	listed := make(map[compute.EnvironmentID]bool, len(all))
	for i := range all {
		env := all[i]
		listed[env.ID] = true
		if p.tasks[env.ID] != nil {
			continue
		}
		life, cancel := context.WithCancel(ctx)
		task := &environmentTask{cancel: cancel, done: make(chan struct{})}
		p.mu.Lock()
		p.tasks[env.ID] = task
		p.mu.Unlock()
		go func() {
			defer close(task.done)
			p.prepare(life, task, env, by)
		}()
	}
	gone := false
	for id, task := range p.tasks {
		if listed[id] {
			continue
		}
		task.cancel()
		<-task.done
		by.Forget(id)
		p.mu.Lock()
		delete(p.tasks, id)
		p.mu.Unlock()
		gone = true
	}
	if gone {
		p.changed(ctx)
	}
}

// prepare makes one environment ready. It tries again until it succeeds or ctx ends.
func (p *environments) prepare(ctx context.Context, task *environmentTask, env compute.Environment, by preparer) {
	for wait := environmentRetryMin; ; wait = min(2*wait, environmentRetryMax) {
		select {
		case p.one <- struct{}{}:
		case <-ctx.Done():
			return
		}
		size, err := by.Prepare(ctx, env)
		<-p.one
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			p.set(task, compute.NodeEnvironment{Status: compute.EnvironmentReady, SizeMiB: size})
			p.log.Info("environment ready", "key", env.Name)
			p.changed(ctx)
			return
		}
		p.log.Warn("environment not prepared", "key", env.Name, "err", err)
		p.set(task, compute.NodeEnvironment{
			Status: compute.EnvironmentFailed, Error: compute.Clip(compute.MessageOf(err), compute.MaxEnvironmentNote),
		})
		if !loop.Sleep(ctx, wait) {
			return
		}
	}
}

func (p *environments) set(task *environmentTask, state compute.NodeEnvironment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	task.state = state
}

// report reports what is another than the cluster knows.
func (p *environments) report(ctx context.Context, all []compute.Environment, source environmentSource) {
	for i := range all {
		env := &all[i]
		p.mu.Lock()
		state := p.tasks[env.ID].state
		p.mu.Unlock()
		if len(env.Nodes) == 1 && env.Nodes[0].Same(&state) {
			continue
		}
		wait, cancel := context.WithTimeout(ctx, environmentTimeout)
		err := source.Report(wait, worker.EnvironmentReport{
			Environment: env.ID, Status: state.Status, SizeMiB: state.SizeMiB, Error: state.Error,
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			p.log.Debug("environment not reported", "err", err)
		}
	}
}

// replicaEnvironments reads the environments in this node's replica.
type replicaEnvironments struct{ *Node }

func (r replicaEnvironments) List(context.Context) ([]compute.Environment, error) {
	return worker.EnvironmentsFor(r.machine.View(), r.cluster.ID()), nil
}

func (r replicaEnvironments) Report(ctx context.Context, report worker.EnvironmentReport) error {
	_, err := r.proposer().do(ctx, report.Command(r.cluster.ID()))
	return err
}

// prepareEnvironments keeps the named environments of this node ready.
func (n *Node) prepareEnvironments(ctx context.Context) error {
	if n.isWorker() {
		n.environments.run(ctx, workerEnvironments, &worker.Environments{Up: n.cluster}, n.executor)
	} else {
		n.environments.run(ctx, environmentsPeriod, replicaEnvironments{n}, n.executor)
	}
	return nil
}
