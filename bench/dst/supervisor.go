package dst

import (
	"time"

	protocol "berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/executor/journal"
)

// stopGrace is how long code may take to end after SIGTERM.
const stopGrace = 10 * time.Second

// supervisor supervises the code of one attempt. It outlives the node's
// process, not the machine.
type supervisor struct {
	m          *machine
	key        key
	placeIndex uint64
	shares     []compute.GPUShare
	length     time.Duration // The code's runtime if nothing stops it.
	exit       int
	timeout    time.Duration
	lease      boottime.Lease

	dead     bool
	ending   bool
	execlet  compute.Instant
	began    compute.Instant
	startAt  time.Duration // 0 before the code started.
	status   compute.Status
	reason   compute.Reason
	notified bool // It was notified of a preemption.
	stopping compute.Stop
}

// spawn starts the supervisor of a prepared attempt.
func (a *agent) spawn(at *attempt, e *compute.Execution, shares []compute.GPUShare) {
	w := a.w
	s := &supervisor{
		m: a.machine, key: at.key, placeIndex: at.placeIndex, shares: shares, timeout: e.Timeout,
		lease: at.lease, length: time.Second + w.exponential(2*time.Minute),
	}
	if w.happens(0.1) {
		s.exit = 1
	}
	a.supervisors[at.key] = s
	d := a.directory(at.key)
	w.after(w.between(time.Millisecond, 5*time.Millisecond), s.guard(func() {
		if d.read().Starting {
			s.die()
			s.hangUp()
			return
		}
		s.execlet = s.m.clock()
		line, err := journal.StartingLine(s.execlet)
		d.write(w, line, err)
		if w.config.Bug == BugUnsyncedStarting {
			s.begin(d)
		}
		w.maybeKill(s.m)
		w.after(w.fsync(), s.guard(func() {
			d.synced, d.durable = len(d.journal), true
			s.begin(d)
		}))
	}))
	s.watch()
}

// leaseOf returns how long an attempt continues without contact.
func leaseOf(w *world, e *compute.Execution) time.Duration {
	if w.config.Bug == BugLongLease {
		return max(e.DisconnectGrace, protocol.Lease)
	}
	return protocol.LeaseOf(e)
}

// guard wraps fn so that it runs only while the supervisor lives.
func (s *supervisor) guard(fn func()) func() {
	return func() {
		if !s.dead {
			fn()
		}
	}
}

// begin starts the code, unless it must end already or the cluster may have
// given up the attempt.
func (s *supervisor) begin(d *directory) {
	w := s.m.w
	if s.startAt != 0 {
		return
	}
	checked := w.config.Bug != BugUncheckedStart
	if checked && s.lease.Over(w.now) {
		s.end(compute.StatusSystemFailure, compute.ReasonNodeLost, 0)
	}
	if checked && s.ending {
		s.finish()
		return
	}
	s.startAt, s.began = w.now, s.m.clock()
	w.oracle.started(s)
	line, err := journal.StartedLine(s.began)
	d.write(w, line, err)
	s.reportStart()
	w.maybeKill(s.m)
	w.after(s.length, s.guard(func() { s.finish() }))
	w.after(s.timeout, s.guard(func() { s.end(compute.StatusFailed, compute.ReasonTimeout, stopGrace) }))
	if s.ending {
		w.after(w.between(0, 50*time.Millisecond), s.guard(func() { s.finish() }))
	}
}

// reportStart has the node's process report that the code started.
func (s *supervisor) reportStart() {
	m := s.m
	start := command.StartAttempt{Node: m.node, Start: compute.AttemptStart{
		Execution: s.key.execution, Epoch: s.key.epoch, ExecletAt: s.execlet, StartedAt: s.began,
	}}
	m.w.after(m.w.between(100*time.Microsecond, 10*time.Millisecond), m.guard(func() {
		if m.agent.live[s.key] != nil {
			m.w.propose(m.id, m.alive(), time.Minute, start, func(bool, command.Result) {})
		}
	}))
}

// watch ends the code when the grace since the last contact with the leader is
// over. It uses the machine's boottime, which never stops.
func (s *supervisor) watch() {
	w := s.m.w
	switch {
	case s.lease.Over(w.now):
		s.end(compute.StatusSystemFailure, compute.ReasonNodeLost, 0)
	case s.lease.Until() > 0:
		w.after(s.lease.Until()-w.now, s.guard(s.watch))
	}
}

// preempt notifies the code of a preemption and stops it after the notice. It
// ignores code that has not started.
func (s *supervisor) preempt(notice time.Duration) {
	if s.notified {
		return
	}
	s.notified = true
	if s.startAt == 0 {
		s.end(compute.StatusSystemFailure, compute.ReasonPreempted, 0)
		return
	}
	s.m.w.after(notice, s.guard(func() {
		s.end(compute.StatusSystemFailure, compute.ReasonPreempted, stopGrace)
	}))
}

// stop stops the code; a hard stop replaces a graceful one.
func (s *supervisor) stop(how compute.Stop) {
	if how <= s.stopping {
		return
	}
	s.stopping = how
	if how == compute.StopHard {
		if s.reason == compute.ReasonStopped {
			s.status, s.reason = compute.StatusAborted, compute.ReasonAborted
		}
		s.end(compute.StatusAborted, compute.ReasonAborted, 0)
		return
	}
	s.end(compute.StatusCancelled, compute.ReasonStopped, stopGrace)
}

// end ends the code within a time; the first cause stands.
func (s *supervisor) end(status compute.Status, reason compute.Reason, within time.Duration) {
	if !s.ending {
		s.ending, s.status, s.reason = true, status, reason
	}
	w := s.m.w
	if s.startAt != 0 {
		w.after(w.between(0, within)+w.between(0, 50*time.Millisecond), s.guard(func() { s.finish() }))
	}
}

// finish writes the outcome to the journal and ends the supervisor.
func (s *supervisor) finish() {
	w := s.m.w
	outcome := compute.Outcome{
		Execution: s.key.execution, Epoch: s.key.epoch, Status: compute.StatusCompleted,
		ExecletAt: s.execlet, EndedAt: s.m.clock(),
	}
	if s.startAt != 0 {
		outcome.Ran, outcome.StartedAt = true, s.began
		outcome.Duration = w.now - s.startAt
		outcome.EndedAt = s.began.Add(outcome.Duration)
	}
	switch {
	case s.ending:
		outcome.Status, outcome.Reason, outcome.ExitCode = s.status, s.reason, 143
	case s.exit != 0:
		outcome.Status, outcome.Reason, outcome.ExitCode = compute.StatusFailed, compute.ReasonExitCode, s.exit
	}
	s.gone()
	boot, d := s.m.boot, s.m.disk.attempts[s.key]
	w.oracle.outcome(s.key, outcome)
	w.maybeKill(s.m)
	line, err := journal.EndedLine(outcome)
	d.write(w, line, err)
	w.after(w.fsync(), func() {
		if s.m.boot != boot || s.m.supervisors[s.key] != s {
			return
		}
		d.synced = len(d.journal)
		delete(s.m.supervisors, s.key)
		s.hangUp()
	})
}

// gone records that no code is left. The journal is still to be written.
func (s *supervisor) gone() {
	s.dead = true
	if s.startAt != 0 {
		s.m.w.oracle.ended(s)
	}
}

// die kills the supervisor and its code without a report.
func (s *supervisor) die() {
	if !s.dead {
		s.gone()
	}
	delete(s.m.supervisors, s.key)
}

// hangUp reports the end of the supervisor to the node's process, if there is
// one.
func (s *supervisor) hangUp() {
	if s.m.up {
		s.m.agent.gone(s.key)
	}
}
