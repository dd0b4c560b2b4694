package executor

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/journal"
	"berth/node/executor/live"
	"berth/node/executor/supervise"
)

const (
	dyingTimeout = 15 * time.Second // For a supervisor that closed its connection to end the attempt.
	dyingPoll    = 5 * time.Millisecond
)

// start prepares the attempt, starts its supervisor and follows it. It returns
// true when the attempt ended or ctx ended before anything was started, as
// follow does.
func (e *Executor) start(ctx context.Context, a *live.Attempt, w compute.Work) bool {
	if !w.Attempt.StartedAt.IsZero() {
		// The state knows that the code started, and this node does not.
		outcome := e.lost(a.Key, journal.State{StartedAt: w.Attempt.StartedAt}, "its record on the node is gone")
		e.conclude(a, ending{Outcome: outcome})
		return true
	}
	if !e.turns.Take(ctx) {
		return true
	}
	conn, err := e.preparer.Prepare(ctx, a, w)
	e.turns.Give()
	if ctx.Err() != nil && conn == nil {
		return true // Nothing was started. The next process starts over.
	}
	if err != nil {
		e.conclude(a, ending{Outcome: e.failedStart(a, err)})
		return true
	}
	return e.follow(ctx, a, conn)
}

// follow follows the attempt until it ends, and then returns true. It returns
// false when ctx ends: the attempt keeps running. Without a connection it first
// dials the supervisor.
func (e *Executor) follow(ctx context.Context, a *live.Attempt, conn *supervise.Conn) bool {
	for ctx.Err() == nil {
		ended := false
		if conn != nil {
			a.Connect(conn)
			ended = e.listen(ctx, a, conn)
			a.Disconnect()
		}
		if ctx.Err() != nil {
			return false
		}
		next, end := e.settle(ctx, a, ended)
		if end != nil {
			return e.concludeWithOutputs(ctx, a, *end)
		}
		conn = next
	}
	return false
}

// listen handles the supervisor's events until the attempt or the connection ends. It
// reports whether the supervisor has said that the attempt ended, which it does once its
// journal has that on disk.
func (e *Executor) listen(ctx context.Context, a *live.Attempt, conn *supervise.Conn) (ended bool) {
	defer context.AfterFunc(ctx, conn.Close)()
	reporting, cancel := context.WithCancel(ctx)
	defer cancel() // After the end, the start need not be reported.
	for {
		event, err := conn.Next()
		if err != nil || event.Ended {
			return err == nil
		}
		if event.Readiness {
			e.reports.ready(ctx, a, event.Ready)
			continue
		}
		fault.Point("executor.started")
		e.watch(a, nil, event.StartedAt)
		e.metrics.start.Observe(e.cfg.Now().Sub(a.Seen).Seconds())
		start := compute.AttemptStart{
			Execution: a.Key.Execution, Epoch: a.Key.Epoch,
			ExecletAt: event.ExecletAt, StartedAt: event.StartedAt,
		}
		e.group.Go(func() { e.reports.start(reporting, start) })
	}
}

// settle determines the state of an attempt whose supervisor closed its
// connection, and said before that it ended or not. It returns how the attempt ended,
// or a new connection to the supervisor, or neither when ctx ends.
func (e *Executor) settle(ctx context.Context, a *live.Attempt, ended bool) (*supervise.Conn, *ending) {
	dir := e.dirs.Dir(a.Key)
	name := filepath.Join(dir, supervise.JournalFile)
	tick := time.NewTicker(dyingPoll)
	defer tick.Stop()
	patience := time.NewTimer(dyingTimeout)
	defer patience.Stop()
	for {
		state, err := journal.Read(name)
		if err == nil && state.Outcome != nil {
			// Before code is started, a journal's directory need not be on disk.
			return nil, &ending{*state.Outcome, ended && state.Outcome.Ran}
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
			return nil, &ending{Outcome: e.lost(a.Key, state, detail)}
		}
	}
}

// kill kills the remaining processes of the attempt's code.
func (e *Executor) kill(a *live.Attempt) {
	if err := e.groups.Group(a).Remove(live.KillTimeout); err != nil {
		e.log.Error("cgroup not removed", "execution", a.Key.Execution, "attempt", a.Key.Epoch, "err", err)
	}
	if e.dirs.InContainers(a.Key) {
		e.preparer.DropContainers(a.Key)
	}
}

// endUnsupervised kills the code of a dead supervisor and returns how the attempt
// ended.
func (e *Executor) endUnsupervised(a *live.Attempt, state journal.State) *ending {
	e.kill(a)
	if state.Outcome != nil {
		return &ending{Outcome: *state.Outcome} // Its line may not be on disk yet.
	}
	detail := e.dirs.StderrTail(a.Key)
	if state.Damaged {
		detail = "its journal is not what was written"
	}
	if state.Starting {
		return &ending{Outcome: e.lost(a.Key, state, detail)}
	}
	return &ending{Outcome: e.failedStart(a, fmt.Errorf("the supervisor ended before the start: %s", detail))}
}
