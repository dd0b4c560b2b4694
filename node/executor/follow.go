package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/journal"
	"berth/node/executor/program"
	"berth/node/executor/supervise"
)

const (
	dyingTimeout = 15 * time.Second // For a supervisor that closed its connection to exit.
	dyingPoll    = 5 * time.Millisecond
	killTimeout  = 10 * time.Second // For the rest of a cgroup to exit.
)

// startProcess starts a supervisor, whose first descriptors are files. It has its own
// session, so that it outlives this process.
func (e *Executor) startProcess(files []*os.File, args ...string) error {
	// The supervisor is mostly idle. With one thread of Go code and one malloc
	// arena it starts faster and does not take cores from the attempt.
	attr := &os.ProcAttr{
		Dir: "/", Env: append(fault.Environment(), "GOMAXPROCS=1", "MALLOC_ARENA_MAX=1"),
		Files: files, Sys: &syscall.SysProcAttr{Setsid: true},
	}
	path := program.Own
	if args[0] == supervise.Command { // Those of containers have the client of the engine.
		path, attr.Files = e.program.For(files)
	}
	args = append([]string{"berth"}, args...)
	process, err := os.StartProcess(path, args, attr)
	if err != nil && path != program.Own {
		e.log.Warn("supervisor executes the whole binary", "hint", "it starts more slowly", "err", err)
		attr.Files = files
		process, err = os.StartProcess(program.Own, args, attr)
	}
	if err != nil {
		return fmt.Errorf("spawn supervisor: %w", err)
	}
	go func() {
		// Only reaps the process. The outcome is in the journal.
		_, _ = process.Wait()
	}()
	return nil
}

// follow follows the attempt until it ends, and then returns true. It returns
// false when ctx ends: the attempt keeps running. Without a connection it first
// dials the supervisor.
func (e *Executor) follow(ctx context.Context, a *attempt, conn *supervise.Conn) bool {
	for ctx.Err() == nil {
		if conn != nil {
			a.connect(conn)
			e.listen(ctx, a, conn)
			a.disconnect()
		}
		if ctx.Err() != nil {
			return false
		}
		next, outcome := e.settle(ctx, a)
		if outcome != nil {
			return e.concludeWithOutputs(ctx, a, *outcome)
		}
		conn = next
	}
	return false
}

// listen handles the supervisor's events until the attempt or the connection ends.
func (e *Executor) listen(ctx context.Context, a *attempt, conn *supervise.Conn) {
	defer context.AfterFunc(ctx, conn.Close)()
	reporting, cancel := context.WithCancel(ctx)
	defer cancel() // After the end, the start need not be reported.
	for {
		event, err := conn.Next()
		if err != nil || event.Ended {
			return
		}
		if event.Readiness {
			e.setReady(ctx, a, event.Ready)
			continue
		}
		fault.Point("executor.started")
		e.watch(a, nil, event.StartedAt)
		e.metrics.start.Observe(e.cfg.Now().Sub(a.seen).Seconds())
		start := compute.AttemptStart{
			Execution: a.key.execution, Epoch: a.key.epoch,
			ExecletAt: event.ExecletAt, StartedAt: event.StartedAt,
		}
		e.group.Go(func() { e.reportStart(reporting, start) })
	}
}

func (e *Executor) reportStart(ctx context.Context, start compute.AttemptStart) {
	fault.Point("executor.start.report")
	err := e.repeat(ctx, func(ctx context.Context) error { return e.reporter.StartAttempt(ctx, start) })
	fault.Point("executor.start.reported")
	if err != nil && ctx.Err() == nil {
		e.log.Warn("start refused", "execution", start.Execution, "attempt", start.Epoch, "err", err)
	}
}

// settle determines the state of an attempt whose supervisor closed its
// connection. It returns an outcome, or a new connection to the supervisor, or
// neither when ctx ends.
func (e *Executor) settle(ctx context.Context, a *attempt) (*supervise.Conn, *compute.Outcome) {
	dir := e.dir(a.key)
	name := filepath.Join(dir, supervise.JournalFile)
	tick := time.NewTicker(dyingPoll)
	defer tick.Stop()
	patience := time.NewTimer(dyingTimeout)
	defer patience.Stop()
	for {
		state, err := journal.Read(name)
		if err == nil && state.Outcome != nil {
			return nil, state.Outcome
		}
		held, err := journal.Open(name)
		if err == nil {
			defer held.Close()
			return nil, e.endUnsupervised(a, held.State())
		}
		// The journal is held, or cannot be opened. The supervisor may be alive.
		if conn, err := supervise.Dial(dir); err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-tick.C:
		case <-patience.C:
			e.kill(a)
			detail := "the supervisor does not answer"
			if !errors.Is(err, journal.ErrHeld) {
				detail = err.Error()
			}
			outcome := e.lost(a.key, state, detail)
			return nil, &outcome
		}
	}
}

// kill kills the remaining processes of the attempt's code.
func (e *Executor) kill(a *attempt) {
	if err := e.groupOf(a).Remove(killTimeout); err != nil {
		e.log.Error("cgroup not removed", "execution", a.key.execution, "attempt", a.key.epoch, "err", err)
	}
	if e.inContainers(a.key) {
		e.dropContainers(a.key)
	}
}

// endUnsupervised kills the code of a dead supervisor and returns the attempt's
// outcome.
func (e *Executor) endUnsupervised(a *attempt, state journal.State) *compute.Outcome {
	e.kill(a)
	if state.Outcome != nil {
		return state.Outcome
	}
	detail := e.stderrTail(a.key)
	if state.Damaged {
		detail = "its journal is not what was written"
	}
	if state.Starting {
		outcome := e.lost(a.key, state, detail)
		return &outcome
	}
	outcome := e.failedStart(a, fmt.Errorf("the supervisor ended before the start: %s", detail))
	return &outcome
}

// lost returns the outcome of an attempt whose code may have been started and
// whose supervisor is dead or does not answer. Only its end is certain.
func (e *Executor) lost(k key, state journal.State, detail string) compute.Outcome {
	now := compute.InstantOf(e.cfg.Now())
	outcome := compute.Outcome{
		Execution: k.execution, Epoch: k.epoch,
		Status: compute.StatusSystemFailure, Reason: compute.ReasonSupervisorLost,
		Detail:    strings.TrimSuffix("what watched the code was killed, or its record lost: "+detail, ": "),
		ExecletAt: state.ExecletAt, StartedAt: state.StartedAt, EndedAt: now,
	}
	return outcome
}

// stderrTail returns the end of the standard error of the attempt's supervisor.
func (e *Executor) stderrTail(k key) string {
	data, err := os.ReadFile(filepath.Join(e.dir(k), supervise.ErrorFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data[max(len(data)-stderrBytes, 0):]))
}
