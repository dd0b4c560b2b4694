package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/fault"
	"berth/node/executor/journal"
	"berth/node/executor/live"
	"berth/node/executor/supervise"
)

// abandonedAge is the age from which the empty cgroup of another node counts as
// abandoned.
const abandonedAge = time.Hour

// adoptAll adopts the attempts of an earlier process. The files of the outbox are
// durable, but a power failure may have removed the directory of an attempt that has one.
// adoptAll makes that directory again, because the attempt would restart without it.
func (e *Executor) adoptAll(ctx context.Context) error {
	for _, k := range e.outbox.keys() {
		if err := os.MkdirAll(e.dirs.Dir(k), 0o700); err != nil {
			return fmt.Errorf("adopt attempt: %w", err)
		}
	}
	keys, err := e.dirs.Stored()
	if err != nil {
		return err
	}
	for _, k := range keys {
		if _, err := e.dirs.Reported(k); err == nil {
			continue
		}
		e.adopt(ctx, k)
	}
	return nil
}

// adopt takes over an attempt of an earlier process. It follows a supervisor that
// is alive, and otherwise ends the attempt according to its journal. If the files
// of an attempt cannot be read or removed, only that attempt ends.
func (e *Executor) adopt(ctx context.Context, k live.Key) {
	spec, err := supervise.ReadSpec(e.dirs.Dir(k))
	if err != nil {
		spec = new(supervise.Spec)
	}
	a := live.NewAttempt(k, spec.PlaceIndex, e.cfg.Now(), 0)
	a.SetGroup(spec.Group)
	fault.Point("executor.adopt.begin")
	held, err := journal.Open(filepath.Join(e.dirs.Dir(k), supervise.JournalFile))
	switch {
	case errors.Is(err, journal.ErrHeld):
		e.log.Info("attempt adopted", "execution", k.Execution, "attempt", k.Epoch)
		e.followAdopted(ctx, a)
		return
	case errors.Is(err, os.ErrNotExist):
		// It ended before it had a journal, and its outcome is in the outbox.
		// Or the process died before it made the journal.
		e.discard(a)
		return
	case err != nil:
		// Its supervisor may be alive. If not, following it shows that.
		e.log.Error("journal not opened", "execution", k.Execution, "attempt", k.Epoch, "err", err)
		e.followAdopted(ctx, a)
		return
	}
	defer held.Close()
	state := held.State()
	if state.NotStarted() { // No supervisor can start while this process holds the journal.
		e.discard(a)
		return
	}
	end := e.endUnsupervised(a, state)
	fault.Point("executor.adopt.buried")
	if !e.dirs.LeftOutputs(k) {
		e.conclude(a, *end)
		return
	}
	e.add(a)
	e.group.Go(func() {
		if e.concludeWithOutputs(ctx, a, *end) {
			e.live.Remove(a)
		}
	})
}

// followAdopted follows a supervisor that outlived its node process.
func (e *Executor) followAdopted(ctx context.Context, a *live.Attempt) {
	fault.Point("executor.adopt.reunite")
	e.add(a)
	e.metrics.adopted.Inc()
	e.group.Go(func() {
		if e.follow(ctx, a, nil) {
			e.live.Remove(a)
		}
	})
}

// discard removes the directory of an attempt without an outcome. If that fails,
// the attempt ends, because the remaining directory prevents its restart.
func (e *Executor) discard(a *live.Attempt) {
	if e.outbox.has(a.Key) {
		return
	}
	fault.Point("executor.adopt.discard")
	if err := e.dirs.Remove(a.Key); err != nil {
		e.conclude(a, ending{Outcome: e.failedStart(a, fmt.Errorf("discard attempt: %w", err))})
		return
	}
	e.metrics.reaped.WithLabelValues("directory").Inc()
}

// reap removes the cgroups of attempts whose supervisors are dead. Mounts and
// networks need no removal: they ended with the sandboxes' namespaces.
func (e *Executor) reap() error {
	names, err := e.groups.Host.Groups()
	if err != nil {
		return err
	}
	for _, name := range names {
		text, ours := strings.CutPrefix(name, e.groups.Prefix())
		if ours && (e.dirs.Supervised(text) || e.preparer.UsesGroup(name)) ||
			!ours && !e.groups.Host.Group(name).Abandoned(e.cfg.Now().Add(-abandonedAge)) {
			continue
		}
		if err := e.groups.Host.Group(name).Remove(live.KillTimeout); err != nil {
			return fmt.Errorf("reap: %w", err)
		}
		e.metrics.reaped.WithLabelValues("cgroup").Inc()
		e.log.Warn("stale cgroup removed", "attempt", text)
	}
	return nil
}
