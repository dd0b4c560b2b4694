package docker

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Labels that Docker Compose gives containers.
const (
	labelService = "com.docker.compose.service"
	labelNeeds   = "com.docker.compose.depends_on"
)

// Times of a stop.
const (
	stopEvery   = 100 * time.Millisecond
	quietChecks = 20 // Checks at which nothing runs, for Docker Compose to end by itself.
)

// composeCode is the exit code of Docker Compose if it fails itself.
const composeCode = 1

// Docker Compose is killed if it has not ended so many checks after a container failed and no
// other one runs.
const (
	stuckEvery  = 2 * time.Second
	stuckChecks = 5
)

// endStuck kills Docker Compose if it does not notice that a container has failed.
func (b *composed) endStuck() {
	ticker := time.NewTicker(stuckEvery)
	defer ticker.Stop()
	for checks := 0; checks < stuckChecks; {
		select {
		case <-b.ended:
			return
		case <-ticker.C:
		}
		if checks++; b.mayRun() || b.firstFailure() == 0 {
			checks = 0
		}
	}
	b.stuck.Store(true)
	_ = b.cmd.Process.Kill() // It may have ended in this moment.
}

// mayRun reports whether a container runs, also where the engine does not say.
func (b *composed) mayRun() bool {
	running, err := b.running()
	return err != nil || len(running) > 0
}

// running returns the containers that run.
func (b *composed) running() ([]container.Summary, error) { return b.list(false) }

// list returns the containers that run, or all.
func (b *composed) list(all bool) ([]container.Summary, error) {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	found, err := b.api.ContainerList(ctx, client.ContainerListOptions{
		All: all, Filters: make(client.Filters).Add("label", labelAttempt+"="+b.attempt),
	})
	return found.Items, err
}

// firstFailure returns the exit code of the container that failed first, 0 for none.
func (b *composed) firstFailure() (code int) {
	var first time.Time
	for _, s := range b.states() {
		at, err := time.Parse(time.RFC3339Nano, s.FinishedAt)
		if err == nil && s.Status == container.StateExited && s.ExitCode != 0 && (code == 0 || at.Before(first)) {
			first, code = at, s.ExitCode
		}
	}
	return code
}

// states returns the states of the containers, as far as the engine knows them.
func (b *composed) states() (states []*container.State) {
	found, err := b.list(true)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	for i := range found {
		inspected, err := b.api.ContainerInspect(ctx, found[i].ID, client.ContainerInspectOptions{})
		if err == nil && inspected.Container.State != nil {
			states = append(states, inspected.Container.State)
		}
	}
	return states
}

// Terminate begins to stop the containers.
func (b *composed) Terminate() error {
	go b.stop()
	return nil
}

// stop stops the containers, each after those whose services depend on its own. Docker Compose
// would do so at SIGTERM, but no longer pass on what they print: it gets the signal once
// nothing runs, so that it starts nothing more.
func (b *composed) stop() {
	<-b.started
	if b.cmd.Process == nil {
		return // It could not be started.
	}
	ticker := time.NewTicker(stopEvery)
	defer ticker.Stop()
	stopping := make(map[string]bool)
	for quiet := 0; quiet < quietChecks; {
		running, err := b.running()
		if quiet++; err != nil || len(running) > 0 {
			quiet = 0
		}
		for i := range running {
			if id := running[i].ID; !stopping[id] && !isNeeded(&running[i], running) {
				stopping[id] = true
				go b.stopOne(id)
			}
		}
		select {
		case <-b.ended:
			return
		case <-ticker.C:
		}
	}
	_ = b.cmd.Process.Signal(syscall.SIGTERM) // It may have ended in this moment.
}

// stopOne stops a container by its own signal, and kills it after its own grace.
func (b *composed) stopOne(id string) {
	ctx, cancel := context.WithTimeout(context.Background(), b.grace+killTimeout)
	defer cancel()
	if _, err := b.api.ContainerStop(ctx, id, client.ContainerStopOptions{}); err != nil && !cerrdefs.IsNotFound(err) {
		fmt.Fprintln(os.Stderr, err) // The supervisor kills it.
	}
}

// isNeeded reports whether the service of one of others depends on that of c.
func isNeeded(c *container.Summary, others []container.Summary) bool {
	return slices.ContainsFunc(others, func(o container.Summary) bool {
		// The label has service:condition:required, separated by commas.
		for need := range strings.SplitSeq(o.Labels[labelNeeds], ",") {
			if service, _, _ := strings.Cut(need, ":"); service != "" && service == c.Labels[labelService] {
				return true
			}
		}
		return false
	})
}
