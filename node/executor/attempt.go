package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	protocol "berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/fault"
	"berth/node/executor/cgroup"
	"berth/node/executor/journal"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	attemptsDirName = "attempts"
	reportedFile    = "reported" // The state has the outcome.
	stderrBytes     = 400        // Bytes of a dead supervisor's standard error in an outcome.
)

// attempt is one live attempt of this node.
type attempt struct {
	key        key
	placeIndex uint64
	seen       time.Time

	mu sync.Mutex

	group string // Name of its cgroup; "" for that of its key.

	stop      compute.Stop
	preempted bool            // A preemption was requested,
	notice    time.Duration   // with this time until SIGTERM.
	conn      *supervise.Conn // nil while there is no supervisor.
	work      *compute.Work   // After a restart of the node, nil until the state returned it.
	started   compute.Instant // When the code started; 0 before.
	watched   bool            // The meter measures it.
	ready     bool            // Its code is ready, as the supervisor says,
	reporting bool            // which is being reported.
	draining  bool            // Its requests are awaited before it stops.
	warned    compute.Instant // The end of its credits that was noted in its output last.
	reached   time.Duration   // Boottime of the contact that last renewed the lease.
	lease     boottime.Lease  // The code may start within it. After the start the supervisor enforces it.
}

// stopAs requests that the attempt stop. A hard stop replaces a graceful one,
// never the other way around.
func (a *attempt) stopAs(stop compute.Stop) {
	a.mu.Lock()
	changed := stop > a.stop
	a.stop = max(a.stop, stop)
	conn := a.conn
	a.mu.Unlock()
	if changed && conn != nil {
		// If the supervisor has exited, listen notices it.
		_ = conn.Stop(stop)
	}
}

// preempt preempts the attempt for work of a higher priority. Its code gets a
// notice, and is stopped when the notice is over.
func (a *attempt) preempt(notice time.Duration) {
	a.mu.Lock()
	changed := !a.preempted
	a.preempted, a.notice = true, notice
	conn := a.conn
	a.mu.Unlock()
	if changed && conn != nil {
		_ = conn.Preempt(notice) // As above.
	}
}

// warn notes in the output that the credits of the attempt are about to end, and again when
// they last until another time.
func (a *attempt) warn(x *compute.Execution) {
	a.mu.Lock()
	conn, due := a.conn, !x.CreditsEnd.IsZero() && a.warned != x.CreditsEnd
	if conn != nil {
		a.warned = x.CreditsEnd
	}
	a.mu.Unlock()
	if conn != nil && due {
		// As above.
		_ = conn.Note(fmt.Sprintf("credits end at %s: without more of them it is stopped then",
			x.CreditsEnd.Time().UTC().Format(time.RFC3339)))
	}
}

// contact renews the lease: the leader was last reached at that boottime.
func (a *attempt) contact(at time.Duration) {
	a.mu.Lock()
	if a.lease.Renew(at, boottime.Now()) {
		a.reached = at
	}
	conn := a.conn
	a.mu.Unlock()
	if conn != nil {
		_ = conn.Contact(at) // As above.
	}
}

// mayStart returns an error when the code must not start: a stop or a preemption
// was requested, or the lease ran out at any time since the attempt was accepted.
// In that case the attempt may already be rescheduled elsewhere.
func (a *attempt) mayStart() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.stop != compute.StopNone:
		return errStopped
	case a.preempted:
		return errPreempted
	case a.lease.Over(boottime.Now()):
		return errCutOff
	}
	return nil
}

// reachedAt returns the boottime of the contact that the lease counts from.
func (a *attempt) reachedAt() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.reached
}

// connect attaches the supervisor's connection and repeats the earlier requests.
func (a *attempt) connect(conn *supervise.Conn) {
	a.mu.Lock()
	a.conn = conn
	stop, preempted, notice := a.stop, a.preempted, a.notice
	a.mu.Unlock()
	if preempted {
		_ = conn.Preempt(notice) // As above.
	}
	if stop != compute.StopNone {
		_ = conn.Stop(stop) // As above.
	}
}

func (a *attempt) disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		a.conn.Close()
		a.conn = nil
	}
}

func (a *attempt) stopped() compute.Stop {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stop
}

// watch records the attempt's work or the start of its code. Once both are known,
// it starts measuring the attempt's GPUs.
func (e *Executor) watch(a *attempt, w *compute.Work, started compute.Instant) {
	a.mu.Lock()
	if w != nil {
		a.work = w
	}
	a.started = max(a.started, started)
	begin := e.cfg.Meter != nil && !a.watched && a.work != nil && !a.started.IsZero()
	a.watched = a.watched || begin
	work, from := a.work, a.started
	a.mu.Unlock()
	if begin {
		e.cfg.Meter.Watch(*work, from)
	}
}

// groupOf returns the cgroup of an attempt.
func (e *Executor) groupOf(a *attempt) *cgroup.Group {
	a.mu.Lock()
	defer a.mu.Unlock()
	return e.cgroups.Group(cmp.Or(a.group, e.groupName(a.key)))
}

// setGroup records the name of the cgroup of an attempt.
func (a *attempt) setGroup(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.group = name
}

func (e *Executor) attemptsDir() string { return filepath.Join(e.cfg.DataDir, attemptsDirName) }

func (e *Executor) dir(k key) string {
	return filepath.Join(e.attemptsDir(), k.execution.String(), fmt.Sprint(k.epoch))
}

// isNew reports whether the attempt has no directory. One that has a directory was
// prepared or ended here before.
func (e *Executor) isNew(k key) bool {
	_, err := os.Lstat(e.dir(k))
	return errors.Is(err, os.ErrNotExist)
}

// start prepares the attempt, starts its supervisor and follows it. It returns
// true when the attempt ended or ctx ended before anything was started, as
// follow does.
func (e *Executor) start(ctx context.Context, a *attempt, w compute.Work) bool {
	if !w.Attempt.StartedAt.IsZero() {
		// The state knows that the code started, and this node does not.
		outcome := e.lost(a.key, journal.State{StartedAt: w.Attempt.StartedAt}, "its record on the node is gone")
		e.conclude(a, outcome)
		return true
	}
	select {
	case e.starting <- struct{}{}:
	case <-ctx.Done():
		return true
	}
	conn, err := e.prepare(ctx, a, w)
	<-e.starting
	if ctx.Err() != nil && conn == nil {
		return true // Nothing was started. The next process starts over.
	}
	if err != nil {
		e.conclude(a, e.failedStart(a, err))
		return true
	}
	ended := e.follow(ctx, a, conn)
	if ctx.Err() == nil {
		e.group.Go(func() { e.keepSupervisor(e.spareFor(w.Execution)) })
	}
	return ended
}

// prepare makes the attempt's directory and gives it a supervisor. It does not
// start an attempt that must stop. It checks that twice, because loading the
// inputs may take a minute. The supervisor checks it again.
func (e *Executor) prepare(ctx context.Context, a *attempt, w compute.Work) (*supervise.Conn, error) {
	if err := a.mayStart(); err != nil {
		return nil, err
	}
	fault.Point("executor.prepare.begin")
	bundle, err := e.bundle(ctx, w.Execution.Bundle)
	if err != nil {
		return nil, err
	}
	model, err := e.takeModel(ctx, a, w, bundle)
	if err != nil {
		return nil, err
	}
	if w.Execution.Container != nil && e.engine.Load() == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "this node has no Docker engine that answers")
	}
	spare := e.spareFor(w.Execution)
	e.keepSupervisor(spare) // It initialises meanwhile.
	res, err := e.takeResources(ctx, a, w, bundle, model)
	if err != nil {
		return nil, err
	}
	defer res.close() // The supervisor has its own descriptors.
	if err := e.layOut(ctx, a, w, bundle, res); err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), a.mayStart()); err != nil {
		return nil, err
	}
	waiting := res.supervisor
	if waiting == nil {
		if waiting, err = e.takeSupervisor(spare); err != nil {
			return nil, err
		}
	}
	res.supervisor = nil // The attempt has it.
	conn, err := e.hand(waiting, spare, e.dir(a.key), res)
	if err == nil {
		e.wantWarm(res.warm)
	}
	return conn, err
}

// takeResources takes what the attempt needs of the machine.
func (e *Executor) takeResources(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, model []sandbox.Bind,
) (res *resources, err error) {
	if w.Execution.Container != nil {
		res, err = e.takeForContainers(ctx, a, w, bundle, model)
	} else {
		res, err = e.takeForSandbox(ctx, a, w, bundle, model)
	}
	if err != nil && res != nil {
		res.close()
	}
	return res, err
}

// takeForSandbox takes what a sandbox needs of the machine. With an error it returns what it
// took before.
func (e *Executor) takeForSandbox(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, model []sandbox.Bind,
) (*resources, error) {
	env, err := e.environmentOf(ctx, w.Execution)
	if err != nil {
		return nil, err
	}
	if e.pythonFor(env) == nil && needsPython(bundle) {
		return nil, e.pythonErr
	}
	kept, err := e.keptVariables(ctx, w, bundle)
	if err != nil {
		return nil, err
	}
	res, err := e.takeSandbox(ctx, a, w, bundle, startsEarly(w.Execution, bundle, kept))
	if err != nil {
		return nil, err
	}
	res.environment, res.model = env, model
	if res.packages, err = e.takePackages(ctx, a, w, bundle, env); err != nil {
		return res, err
	}
	if res.variables, err = passVariables(kept); err != nil {
		return res, err
	}
	return res, e.takeStorage(ctx, a, w, res)
}

// takeSandbox takes a warm sandbox, or what is needed to make one.
func (e *Executor) takeSandbox(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, early bool,
) (*resources, error) {
	key, ok := e.warmKeyOf(w, bundle, early)
	if ok {
		if warm := e.takeWarm(key); warm != nil {
			e.metrics.warm.Inc()
			a.setGroup(warm.group.Name())
			warm.res.supervisor, warm.res.group, warm.res.warm = warm.conn, warm.group.Name(), &key
			return warm.res, nil
		}
	}
	res, err := e.takePlain(ctx, w.Execution.Network, w.Execution)
	if err != nil {
		return nil, err
	}
	if res.early = early; ok {
		res.warm = &key
	}
	return res, nil
}

// takePlain takes a slot, the network and the scratch space that x asks for.
func (e *Executor) takePlain(ctx context.Context, network compute.Network, x *compute.Execution) (*resources, error) {
	res, err := e.pool.take(network)
	if err != nil {
		return nil, err
	}
	if err := e.takeDisk(ctx, x, res); err != nil {
		res.close()
		return nil, err
	}
	return res, nil
}

// layOut makes the directory of the attempt with the files that its supervisor reads.
// It makes the journal first, so that a later process knows the attempt.
func (e *Executor) layOut(
	ctx context.Context, a *attempt, w compute.Work, bundle *compute.Bundle, res *resources,
) error {
	dir := e.dir(a.key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make attempt directory: %w", err)
	}
	if err := journal.Create(filepath.Join(dir, supervise.JournalFile)); err != nil {
		return fmt.Errorf("make attempt directory: %w", err)
	}
	fault.Point("executor.prepare.journal")
	if err := e.noteOutputsPrefix(a.key, w.Execution); err != nil {
		return fmt.Errorf("make attempt directory: %w", err)
	}
	tree, err := e.tree(ctx, w.Execution.Files)
	if err != nil {
		return err
	}
	if err := writeWork(filepath.Join(dir, supervise.WorkFile), bundle, e.uploaded(ctx, a, tree)); err != nil {
		return err
	}
	if protocol.MayLeave(w.Execution) {
		if err := makeNoticeDir(filepath.Join(dir, supervise.NoticeDir)); err != nil {
			return err
		}
	}
	if len(bundle.Stdin) > 0 {
		if err := os.WriteFile(filepath.Join(dir, supervise.InputFile), bundle.Stdin, 0o600); err != nil {
			return fmt.Errorf("write standard input: %w", err)
		}
	}
	volumes, err := e.volumes(w.Execution)
	if err != nil {
		return err
	}
	spec := e.spec(w, bundle, res, dir)
	spec.DisconnectGrace, spec.ContactAt, spec.Unpack = a.lease.Grace, a.reachedAt(), unpackTime(tree)
	if spec.Container != nil {
		spec.Unpack += containerStart
	} else {
		spec.Sandbox.Binds = append(append(spec.Sandbox.Binds, res.model...), volumes...)
	}
	return spec.Write(dir)
}

// bundle returns the execution's bundle, from the reference itself or from a store.
func (e *Executor) bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	if len(ref.Inline) > 0 {
		bundle, err := compute.DecodeBundle(ref.Inline)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errInputs, err)
		}
		return bundle, nil
	}
	limited, cancel := context.WithTimeout(ctx, bundleTimeout)
	defer cancel()
	var bundle *compute.Bundle
	err := e.repeat(limited, func(ctx context.Context) (err error) {
		bundle, err = e.bundles.Bundle(ctx, ref)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInputs, err)
	}
	return bundle, nil
}

var (
	errStopped   = errors.New("stopped before it was started")
	errPreempted = errors.New("preempted before it was started")
	errCutOff    = errors.New("the node did not reach the cluster before it was started")
	errInputs    = errors.New("the code could not be read")
)

// failedStart returns the outcome of an attempt whose code never started.
func (e *Executor) failedStart(a *attempt, err error) compute.Outcome {
	outcome := compute.Outcome{
		Execution: a.key.execution, Epoch: a.key.epoch,
		Status: compute.StatusSystemFailure, Reason: compute.ReasonStartFailed, Detail: err.Error(),
		ExecletAt: compute.InstantOf(a.seen), EndedAt: compute.InstantOf(e.cfg.Now()),
	}
	switch {
	case errors.Is(err, errStopped) && a.stopped() == compute.StopHard:
		outcome.Status, outcome.Reason = compute.StatusAborted, compute.ReasonAborted
	case errors.Is(err, errStopped):
		outcome.Status, outcome.Reason = compute.StatusCancelled, compute.ReasonStopped
	case errors.Is(err, errPreempted):
		outcome.Reason = compute.ReasonPreempted
	case errors.Is(err, errCutOff):
		outcome.Reason = compute.ReasonNodeLost
	case errors.Is(err, errInputs):
		outcome.Reason = compute.ReasonInputsLost
	case errors.Is(err, errModel):
		outcome.Status = compute.StatusFailed
	case errors.Is(err, errImage):
		outcome.Status, outcome.Reason = compute.StatusFailed, compute.ReasonImage
	case errors.Is(err, errPackages):
		outcome.Status, outcome.Reason = compute.StatusFailed, compute.ReasonPackages
	case compute.CodeOf(err) == compute.CodeInvalid && e.python != nil:
		// The user's file names are invalid: the system did not fail.
		outcome.Status = compute.StatusFailed
	}
	if e, ok := errors.AsType[*compute.Error](err); ok {
		outcome.Detail = e.Message
	}
	return outcome
}

// conclude makes the outcome durable and removes the files that only a live
// attempt needs. The removed spec contains the secrets of its environment.
func (e *Executor) conclude(a *attempt, outcome compute.Outcome) {
	outcome.Detail = compute.Clip(outcome.Detail, maxDetail)
	if e.cfg.Meter != nil {
		if outcome.Ran {
			e.watch(a, nil, outcome.StartedAt) // The end may arrive before the start.
		}
		e.cfg.Meter.Measure(&outcome)
	}
	fault.Point("executor.conclude.begin")
	dir := e.dir(a.key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		e.log.Error("attempt directory not created", "execution", a.key.execution, "attempt", a.key.epoch, "err", err)
	}
	if err := e.outbox.put(outcome); err != nil {
		// It is still reported. If this process ends before, the journal has it.
		e.log.Error("outcome not persisted", "execution", a.key.execution, "attempt", a.key.epoch, "err", err)
	}
	e.clean(dir)
	fault.Point("executor.conclude.clean")
	e.metrics.ended.WithLabelValues(outcome.Status.String(), outcome.Reason.String()).Inc()
	e.log.Info("attempt ended", "execution", a.key.execution, "attempt", a.key.epoch,
		"status", outcome.Status.String(), "took", outcome.Duration)
}

// clean removes what only a live attempt needs.
func (e *Executor) clean(dir string) {
	for _, name := range []string{
		supervise.WorkFile, supervise.InputFile, supervise.SpecFile, supervise.ControlFile, supervise.PortFile,
		supervise.NoticeDir,
		supervise.OutputsFile, supervise.OutputsSummary,
	} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			e.log.Warn("attempt directory not cleaned", "err", err)
		}
	}
}

// markReported records that the state has the outcome, so that no later process
// reports it again. Without the attempt's directory there is nothing to record.
func (e *Executor) markReported(k key) error {
	file, err := os.OpenFile(filepath.Join(e.dir(k), reportedFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark reported: %w", err)
	}
	return file.Close()
}

// maxDetail limits an outcome's detail, in bytes.
const maxDetail = 512
