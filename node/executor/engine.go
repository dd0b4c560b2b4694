package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/loop"
	"berth/node/executor/docker"
	"berth/node/executor/policy"
)

// Times of the probes that find out whether the Docker engine answers.
const (
	engineEvery   = 2 * time.Second  // Between two.
	engineTimeout = 20 * time.Second // For the answer to one: a busy machine is no fault.
)

// engine is the Docker engine of this machine, with what its containers need beside it.
type engine struct {
	*docker.Engine

	seccomp    string
	compose    string // Docker Compose; "" if there is none. Then composeErr has the reason.
	composeErr error
}

// openEngine connects to the Docker engine. An error says why this machine has none that
// can be used.
func (e *Executor) openEngine(ctx context.Context) error {
	c := e.cfg.Containers
	if c.Host == "" {
		return compute.Errorf(compute.CodeUnavailable, "this node executes no containers")
	}
	opened, err := docker.Open(ctx, docker.Config{
		Host: c.Host, Node: e.cfg.Node.String(), Dir: filepath.Join(e.cfg.DataDir, dockerDirName),
		Registries: c.Registries, ECR: c.ECR, KeepMiB: c.KeepMiB, ImageMiB: c.ImageMiB, PullLimit: c.PullLimit,
		Logger: e.log, Now: e.cfg.Now, Live: e.isLive,
	})
	if err != nil {
		return err
	}
	found := &engine{Engine: opened}
	if found.seccomp, err = policy.ContainerSeccomp(); err != nil {
		return errors.Join(err, opened.Close())
	}
	if found.compose, _, found.composeErr = docker.FindCompose(ctx, c.Compose); found.composeErr != nil {
		e.log.Info("compose files unavailable",
			"hint", "install Docker Compose, or set docker.compose", "err", found.composeErr)
	}
	found.warn(e.log)
	e.engine.Store(found)
	return nil
}

// logNoEngine logs why this machine has no engine, if it should have one.
func (e *Executor) logNoEngine(err error) {
	c := e.cfg.Containers
	if c.Host == "" {
		return
	}
	if _, missing := os.Stat(strings.TrimPrefix(c.Host, "unix://")); missing != nil && c.Auto {
		return
	}
	e.metrics.silent.Set(1)
	e.log.Warn("containers unavailable", "hint", "install or start Docker, or set docker.host: off", "err", err)
}

// warn logs why the isolation of the engine is below the minimum.
func (g *engine) warn(log *slog.Logger) {
	if weak := g.Facts().Weak; weak != "" {
		log.Warn("containers for trusted organizations only", "reason", weak)
	}
}

// offers returns the offers of the engine.
func (g *engine) offers() (offers []compute.Offer) {
	trust := []bool{true}
	if g.Facts().Weak == "" {
		trust = append(trust, false)
	}
	for _, trusted := range trust {
		offers = append(offers, compute.DockerOffer(trusted))
		if g.compose != "" {
			offers = append(offers, compute.ComposeOffer(trusted))
		}
	}
	return offers
}

// Engine returns the offers of the Docker engine of this node, none before it has answered
// for the first time, and why it starts no containers at present, "" while it answers.
func (e *Executor) Engine() (offers []compute.Offer, fault string) {
	if e == nil || e.engine.Load() == nil {
		return nil, ""
	}
	return e.engine.Load().offers(), e.engineWatch.Fault()
}

// watchEngine waits until there is an engine, and then watches it until ctx ends.
func (e *Executor) watchEngine(ctx context.Context) {
	if e.engine.Load() == nil {
		said := ""
		if loop.Until(ctx, engineEvery, func() bool {
			err := e.openEngine(ctx)
			if err != nil && err.Error() != said && ctx.Err() == nil {
				said = err.Error()
				e.logNoEngine(err)
			}
			return err == nil
		}) != nil {
			return
		}
		e.metrics.silent.Set(0)
		e.log.Info("containers available")
	}
	e.group.Go(func() { e.reapEvery(ctx) })
	e.engineWatch.run(ctx)
}

// askEngine asks the engine whether it answers. If it did not before, another version of it
// may have been started.
func (e *Executor) askEngine(ctx context.Context, silent bool) error {
	opened := e.engine.Load()
	if !silent {
		return opened.Ping(ctx)
	}
	if err := opened.Refresh(ctx); err != nil {
		return err
	}
	opened.warn(e.log)
	return nil
}

// engineWatch follows whether the Docker engine of this machine answers. It ends nothing
// that executes: only the inventory of the node has its fault.
type engineWatch struct {
	ask    func(ctx context.Context, silent bool) error // Silent: it did not answer the last time.
	now    func() time.Time
	log    *slog.Logger
	silent prometheus.Gauge

	mu sync.Mutex

	fault string
}

// Fault returns why the engine starts no containers, "" while it answers.
func (w *engineWatch) Fault() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// run probes the engine periodically, until ctx ends.
func (w *engineWatch) run(ctx context.Context) {
	loop.Every(ctx, engineEvery, func() { w.probe(ctx) })
}

// probe asks the engine once.
func (w *engineWatch) probe(ctx context.Context) {
	asked, before := w.now(), w.Fault()
	limited, cancel := context.WithTimeout(ctx, engineTimeout)
	defer cancel()
	err := w.ask(limited, before != "")
	if ctx.Err() != nil || (err == nil) == (before == "") {
		return
	}
	fault, gauge := "", 0.0
	if err == nil {
		w.log.Info("docker engine answers again")
	} else {
		fault, gauge = fmt.Sprintf("the Docker engine has not answered since %s", compute.InstantOf(asked)), 1
		w.log.Warn("docker engine silent", "hint", "no containers start here until it answers", "err", err)
	}
	w.silent.Set(gauge)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = fault
}
