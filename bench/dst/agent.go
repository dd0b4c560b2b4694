package dst

import (
	"time"

	protocol "berth/attempt"
	"berth/boottime"
	"berth/compute"
	"berth/fsm/command"
	"berth/node/executor/journal"
)

// Times of a node's process.
const (
	heartbeatPeriod = 3 * time.Second
	pollPeriod      = time.Second // For nodes without a replica.
	reportedDelay   = 5 * time.Second
	fetchTime       = 100 * time.Millisecond // Maximum time to fetch code, mostly.
	slowFetch       = time.Minute            // Maximum of the slow fetches.
)

// agent is a node's process: a small version of package node/executor.
type agent struct {
	*machine

	contactAt time.Duration // When the last answered heartbeat was sent.
	fresh     uint64        // Index that the first view must include; 0 while unknown.
	known     bool          // Whether fresh is set.
	reached   time.Duration // Time of the last contact since then.
	seen      uint64        // Index of the last matched view.
	waking    bool
	live      map[key]*attempt
	order     []key // The order of live.
	sending   map[key]bool
}

// attempt is a live attempt on this node.
type attempt struct {
	key        key
	placeIndex uint64
	stop       compute.Stop
	yields     bool
	notice     time.Duration
	seen       compute.Instant
	lease      boottime.Lease // Shared with its supervisor, once it has one.
}

// startAgent starts the node's part of the process. It first adopts the outcomes and
// attempts that an earlier process left.
func (m *machine) startAgent() {
	m.agent = agent{machine: m, live: map[key]*attempt{}, sending: map[key]bool{}}
	a := &m.agent
	for _, k := range m.disk.waiting {
		a.directory(k) // An attempt that ended here must not restart, even after a power failure.
		if outcome, err := journal.Decode(m.disk.outbox[k]); err == nil {
			a.report(k, outcome)
		} else {
			m.w.violate("an outcome of the outbox is damaged: %v", err)
		}
	}
	order := m.disk.order
	m.disk.order = nil
	for _, k := range order {
		d := m.disk.attempts[k]
		if d == nil {
			continue
		}
		m.disk.order = append(m.disk.order, k)
		if !d.reported {
			a.adopt(k, d)
		}
	}
	a.beat()
	a.catchUp()
	if m.server == nil {
		a.poll()
	}
}

// adopt continues an attempt of an earlier process: with its supervisor if that
// is alive, else from its journal.
func (a *agent) adopt(k key, d *directory) {
	if s := a.supervisors[k]; s != nil {
		a.add(&attempt{key: k, placeIndex: s.placeIndex})
		return
	}
	state := d.read()
	switch {
	case state.NotStarted():
		if a.disk.outbox[k] == nil {
			a.disk.remove(k)
		}
	case state.Outcome != nil:
		a.conclude(*state.Outcome, false)
	default:
		a.conclude(a.supervisorLost(k, state), false)
	}
}

func (a *agent) add(at *attempt) {
	a.live[at.key] = at
	a.order = append(a.order, at.key)
}

// beat sends heartbeats to the leader.
func (a *agent) beat() {
	w, sent := a.w, a.w.now
	leader := w.leader
	if a.server != nil && a.server.term != 0 {
		leader = a.server
	}
	if leader != nil {
		alive := a.alive()
		w.send(a.id, leader.id, func() {
			if leader.term == 0 || !leader.ready || !leader.majority() {
				return
			}
			leader.heard[a.id] = w.now
			if leader.losing[a.id] {
				return // See cluster's Refuse.
			}
			w.send(leader.id, a.id, func() {
				if alive() {
					a.contact(boottime.Reached(sent, w.now))
				}
			})
		})
	}
	w.after(w.between(heartbeatPeriod*9/10, heartbeatPeriod*11/10), a.guard(a.beat))
}

// contact reports the time of the last contact with the leader to the
// supervisors.
func (a *agent) contact(at time.Duration) {
	a.contactAt = max(a.contactAt, at)
	for _, k := range a.order {
		at := a.live[k]
		if at == nil {
			continue
		}
		at.lease.Renew(a.contactAt, a.w.now)
		if s := a.supervisors[k]; s != nil {
			s.lease.Renew(a.contactAt, a.w.now)
		}
	}
}

// catchUp asks the leader for the log's index: in an older view, ended attempts
// seem to be live.
func (a *agent) catchUp() {
	if a.known {
		return
	}
	w, alive, contact := a.w, a.alive(), a.contactAt
	if leader := w.leader; leader != nil {
		w.send(a.id, leader.id, func() {
			if leader != w.leader || !leader.ready || !leader.majority() {
				return
			}
			index := uint64(len(w.log))
			w.send(leader.id, a.id, func() {
				if alive() && !a.known {
					a.known, a.fresh, a.reached = true, index, contact
					a.machine.wakeAgent()
				}
			})
		})
	}
	w.after(time.Second, a.guard(a.catchUp))
}

// wakeAgent schedules a match of the newest view of the node's own replica.
func (m *machine) wakeAgent() {
	a := &m.agent
	if a.waking || !m.up || m.server == nil {
		return
	}
	a.waking = true
	m.w.after(m.w.between(100*time.Microsecond, 5*time.Millisecond), m.guard(func() {
		a.waking = false
		view := m.server.state.View()
		a.match(view.Work(m.node), view.Index())
	}))
}

// poll asks a server for the node's work.
func (a *agent) poll() {
	w, alive := a.w, a.alive()
	s := w.servers[(a.id+int(w.now/time.Minute))%len(w.servers)]
	after := a.seen
	w.send(a.id, s.id, func() {
		view := s.state.View()
		if view.Index() <= after {
			return
		}
		work, index := view.Work(a.node), view.Index()
		w.send(s.id, a.id, func() {
			if alive() {
				a.match(work, index)
			}
		})
	})
	w.after(w.between(pollPeriod/2, pollPeriod), a.guard(a.poll))
}

// match starts new attempts, stops those that must stop, and ends those that
// the state no longer has as live.
func (a *agent) match(work []compute.Work, index uint64) {
	if a.known && a.behind() {
		a.known = false
		a.catchUp()
	}
	if !a.known || index < a.fresh || index <= a.seen {
		return
	}
	if a.contactAt != 0 {
		a.seen = index // Otherwise everything is matched again, because nothing could begin.
	}
	wanted := make(map[key]bool, len(work))
	for _, w := range work {
		k := key{w.Attempt.Execution, w.Attempt.Epoch}
		wanted[k] = true
		if at := a.live[k]; at != nil {
			a.ask(at, &w)
		} else if a.contactAt != 0 && a.disk.attempts[k] == nil {
			a.begin(&w)
		}
	}
	living := a.order[:0]
	for _, k := range a.order {
		at := a.live[k]
		if at == nil {
			continue
		}
		living = append(living, k)
		if !wanted[k] && index >= at.placeIndex {
			at.stop = compute.StopHard
			a.pass(at)
		}
	}
	a.order = living
}

// behind reports whether the node was cut off for so long that the cluster may
// have given up its attempts; see node's attemptSource.
func (a *agent) behind() bool {
	if a.contactAt-a.reached > protocol.NodeTTL || a.w.now-a.contactAt > protocol.NodeTTL {
		return true
	}
	a.reached = a.contactAt
	return false
}

// ask records the stop or preemption that the state asks of a live attempt.
func (a *agent) ask(at *attempt, w *compute.Work) {
	at.stop = max(at.stop, w.Execution.Stop)
	if !w.Attempt.PreemptAt.IsZero() {
		at.yields, at.notice = true, w.Attempt.Notice
	}
	a.pass(at)
}

// pass forwards the requirements to the supervisor.
func (a *agent) pass(at *attempt) {
	s := a.supervisors[at.key]
	if s == nil {
		return
	}
	s.lease.Renew(a.contactAt, a.w.now)
	if at.yields {
		s.preempt(at.notice)
	}
	if at.stop != compute.StopNone {
		s.stop(at.stop)
	}
}

// begin prepares a new attempt and spawns its supervisor.
func (a *agent) begin(w *compute.Work) {
	k := key{w.Attempt.Execution, w.Attempt.Epoch}
	at := &attempt{
		key: k, placeIndex: w.Attempt.PlaceIndex, seen: a.clock(), lease: boottime.Lease{Grace: leaseOf(a.w, w.Execution)},
	}
	if a.w.config.Bug == BugNoDisconnectKill {
		at.lease.Grace = 0
	}
	at.lease.Renew(a.contactAt, a.w.now)
	a.add(at)
	a.ask(at, w)
	if !w.Attempt.StartedAt.IsZero() {
		// The state knows that the code started, but this node does not.
		a.conclude(a.supervisorLost(k, journal.State{StartedAt: w.Attempt.StartedAt}), false)
		return
	}
	if a.refused(at) {
		return
	}
	wait := a.w.between(time.Millisecond, fetchTime)
	if a.w.happens(0.02) {
		wait = a.w.between(time.Second, slowFetch)
	}
	spec := *w.Execution
	shares := w.Attempt.GPUs
	a.w.after(wait, a.guard(func() {
		switch {
		case a.w.config.Bug != BugUncheckedStart && a.refused(at):
		case a.w.happens(0.03):
			a.conclude(a.neverStarted(at, compute.StatusSystemFailure, compute.ReasonStartFailed), false)
		default:
			a.directory(k)
			a.spawn(at, &spec, shares)
			a.pass(at)
		}
	}))
}

// refused ends an attempt that must not start any more, and reports whether it
// did.
func (a *agent) refused(at *attempt) bool {
	switch {
	case at.stop == compute.StopHard:
		a.conclude(a.neverStarted(at, compute.StatusAborted, compute.ReasonAborted), false)
	case at.stop != compute.StopNone:
		a.conclude(a.neverStarted(at, compute.StatusCancelled, compute.ReasonStopped), false)
	case at.yields:
		a.conclude(a.neverStarted(at, compute.StatusSystemFailure, compute.ReasonPreempted), false)
	case at.lease.Over(a.w.now):
		a.conclude(a.neverStarted(at, compute.StatusSystemFailure, compute.ReasonNodeLost), false)
	default:
		return false
	}
	return true
}

// directory returns the directory of an attempt, creating it if needed.
func (a *agent) directory(k key) *directory {
	d := a.disk.attempts[k]
	if d == nil {
		d = &directory{}
		a.disk.attempts[k] = d
		a.disk.order = append(a.disk.order, k)
	}
	return d
}

// neverStarted returns the outcome of an attempt whose code never started.
func (a *agent) neverStarted(at *attempt, status compute.Status, reason compute.Reason) compute.Outcome {
	return compute.Outcome{
		Execution: at.key.execution, Epoch: at.key.epoch, Status: status, Reason: reason,
		ExecletAt: at.seen, EndedAt: a.clock(),
	}
}

// supervisorLost returns the outcome of an attempt whose code may have started
// and whose supervisor is dead.
func (a *agent) supervisorLost(k key, state journal.State) compute.Outcome {
	return compute.Outcome{
		Execution: k.execution, Epoch: k.epoch,
		Status: compute.StatusSystemFailure, Reason: compute.ReasonSupervisorLost,
		ExecletAt: state.ExecletAt, StartedAt: state.StartedAt, EndedAt: a.clock(),
	}
}

// gone handles a supervisor that hung up.
func (a *agent) gone(k key) {
	if a.live[k] == nil {
		return
	}
	d := a.directory(k)
	state := d.read()
	switch {
	case state.Outcome != nil:
		a.conclude(*state.Outcome, state.Outcome.Ran && d.durable && d.synced == len(d.journal))
	case state.Starting:
		a.conclude(a.supervisorLost(k, state), false)
	default:
		a.conclude(a.neverStarted(a.live[k], compute.StatusSystemFailure, compute.ReasonStartFailed), false)
	}
}

// conclude puts an outcome that is in no journal into the outbox, and sends it.
func (a *agent) conclude(outcome compute.Outcome, journaled bool) {
	k := key{outcome.Execution, outcome.Epoch}
	a.directory(k)
	if a.disk.outbox[k] != nil || a.sending[k] {
		delete(a.live, k)
		return // The first outcome stands.
	}
	if journaled {
		delete(a.live, k)
		a.report(k, outcome)
		return
	}
	a.w.after(a.w.fsync(), a.guard(func() {
		delete(a.live, k)
		if a.disk.outbox[k] != nil {
			return
		}
		data, err := journal.Encode(outcome)
		if err != nil {
			a.w.violate("an outcome cannot be encoded: %v", err)
		}
		a.disk.outbox[k] = data
		a.disk.waiting = append(a.disk.waiting, k)
		a.report(k, outcome)
	}))
}

// report sends an outcome until it is accepted or permanently refused.
func (a *agent) report(k key, outcome compute.Outcome) {
	if a.sending[k] {
		return
	}
	a.sending[k] = true
	limit := time.Duration(0)
	if a.w.config.Bug == BugForgottenOutcome {
		limit = proposeWait
	}
	finish := command.FinishAttempt{Node: a.node, Outcome: outcome}
	a.w.propose(a.id, a.alive(), limit, finish, func(ok bool, r command.Result) {
		delete(a.sending, k)
		if ok && !final(r) {
			a.w.after(retryMax, a.guard(func() { a.report(k, outcome) }))
			return
		}
		if d := a.disk.attempts[k]; d != nil {
			d.reported = true
			a.w.after(reportedDelay, func() { d.kept = d.reported })
		}
		a.disk.drop(k)
	})
}
