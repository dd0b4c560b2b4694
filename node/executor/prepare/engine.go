package prepare

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

// open connects to the Docker engine. An error says why this machine has none that
// can be used.
func (c *containers) open(ctx context.Context) error {
	with := &c.cfg.Containers
	if with.Host == "" {
		return compute.Errorf(compute.CodeUnavailable, "this node executes no containers")
	}
	opened, err := docker.Open(ctx, docker.Config{
		Host: with.Host, Node: c.cfg.Node.String(), Dir: filepath.Join(c.cfg.DataDir, dockerDirName),
		Registries: with.Registries, ECR: with.ECR, KeepMiB: with.KeepMiB, ImageMiB: with.ImageMiB,
		PullLimit: with.PullLimit, Logger: c.log, Now: c.cfg.Now, Live: c.live.Has,
	})
	if err != nil {
		return err
	}
	found := &engine{Engine: opened}
	if found.seccomp, err = policy.ContainerSeccomp(); err != nil {
		return errors.Join(err, opened.Close())
	}
	if found.compose, _, found.composeErr = docker.FindCompose(ctx, with.Compose); found.composeErr != nil {
		c.log.Info("compose files unavailable",
			"hint", "install Docker Compose, or set docker.compose", "err", found.composeErr)
	}
	found.warn(c.log)
	c.engine.Store(found)
	return nil
}

// logNone logs why this machine has no engine, if it should have one.
func (c *containers) logNone(err error) {
	with := &c.cfg.Containers
	if with.Host == "" {
		return
	}
	if _, missing := os.Stat(strings.TrimPrefix(with.Host, "unix://")); missing != nil && with.Auto {
		return
	}
	c.silent.Set(1)
	c.log.Warn("containers unavailable", "hint", "install or start Docker, or set docker.host: off", "err", err)
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

// offers returns the offers of the engine, none before it has answered for the first
// time, and why it starts no containers at present, "" while it answers.
func (c *containers) offers() (offers []compute.Offer, fault string) {
	engine := c.engine.Load()
	if engine == nil {
		return nil, ""
	}
	return engine.offers(), c.watch.Fault()
}

// run waits until there is an engine, and then watches it and removes stale containers, until ctx ends.
func (c *containers) run(ctx context.Context) {
	if c.engine.Load() == nil {
		said := ""
		if loop.Until(ctx, engineEvery, func() bool {
			err := c.open(ctx)
			if err != nil && err.Error() != said && ctx.Err() == nil {
				said = err.Error()
				c.logNone(err)
			}
			return err == nil
		}) != nil {
			return
		}
		c.silent.Set(0)
		c.log.Info("containers available")
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { c.reapEvery(ctx) })
	c.watch.run(ctx)
}

// ask asks the engine whether it answers. If it did not before, another version of it
// may have been started.
func (c *containers) ask(ctx context.Context, silent bool) error {
	opened := c.engine.Load()
	if !silent {
		return opened.Ping(ctx)
	}
	if err := opened.Refresh(ctx); err != nil {
		return err
	}
	opened.warn(c.log)
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

// close ends the use of the engine. When idle, no attempt needs the networks of the node.
func (c *containers) close(idle bool) {
	engine := c.engine.Load()
	if engine == nil {
		return
	}
	if idle {
		_ = engine.RemoveIdle(context.Background()) // Networks without containers are harmless.
		c.pool.slots.Disown(c.cfg.Node.String())
	}
	_ = engine.Close()
}
