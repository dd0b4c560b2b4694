package fsm

import (
	"iter"
	"time"

	"berth/compute"
	"berth/fsm/charge"
	"berth/fsm/format"
)

// preempt preempts an attempt if that is still allowed and the work of a higher
// priority still waits. It reports whether it did.
func (s *placement) preempt(p compute.Preemption) bool {
	e, live := s.view.executions.Get(p.Execution)
	a, known := s.view.attempts.Get(numberKey{p.Execution.UUID, p.Epoch})
	urgent, waits := s.view.executions.Get(p.For)
	if !live || !known || !waits || urgent.Status != compute.StatusQueued {
		return false
	}
	w := compute.Work{Attempt: a, Execution: e}
	if !w.MayBePreempted(urgent.Priority, s.view.meta.Now, s.view.MinRun()) {
		return false
	}
	preempted, execution := *a, *e
	preempted.PreemptAt, preempted.Notice = s.view.meta.Now, s.view.PreemptNotice()
	preempted.ForOwn = s.view.Format() >= format.Owed && urgent.Org == e.Org
	execution.Reason = compute.ReasonPreempted
	s.view.putAttempt(&preempted)
	s.execution.putExecution(&execution)
	if n, ok := s.view.nodes.Get(a.Node); ok {
		// Another record: caches of when the node's attempts end must read them
		// again.
		touched := *n
		s.view.nodes.put(&touched)
	}
	return true
}

// yielded reports whether an attempt ended because it was preempted: its node
// reports so, or the system failed meanwhile.
func yielded(a *compute.Attempt, e *compute.Execution, status compute.Status, reason compute.Reason) bool {
	return !a.PreemptAt.IsZero() && e.Stop == compute.StopNone &&
		(reason == compute.ReasonPreempted || status == compute.StatusSystemFailure)
}

// yieldedToOwn reports whether an attempt ended because it was preempted for work
// of its own organization. Otherwise two executions of one organization could
// use machines in turn for nothing. If the system failed meanwhile, it is free.
func yieldedToOwn(a *compute.Attempt, e *compute.Execution, o *compute.Outcome) bool {
	return a.ForOwn && o.Ran && o.Reason == compute.ReasonPreempted && yielded(a, e, o.Status, o.Reason)
}

// owe has e owe the time that an attempt used, and shortens its time limit to the time
// that its ceiling of credits buys after that. It reports whether the ceiling and the
// organization's credits allow another attempt; e changes only then.
func (s *execution) owe(e *compute.Execution, used time.Duration) bool {
	next := *e
	next.Owed += min(used, e.Timeout+e.StopGrace)
	waits := next
	waits.Accept() // As requeue has it wait.
	if !limitTime(&waits) || s.money.lacks(e, charge.FirstHold(&waits)-e.Held) != nil {
		return false
	}
	next.Timeout, next.Detail = waits.Timeout, waits.Detail
	*e = next
	return true
}

// endsOwing returns how an execution ends that cannot pay for another attempt
// after its organization's own work preempted it.
func endsOwing() ending {
	return ending{
		compute.StatusCancelled, compute.ReasonCredits,
		"preempted by the organization's own work; the credits do not buy another attempt",
	}
}

// afterPreemption returns how a preempted execution continues.
func afterPreemption(e *compute.Execution) again {
	if e.Reason == compute.ReasonDrained {
		return afterDrain()
	}
	return again{ended: compute.ReasonPreempted, waits: compute.ReasonPreempted, note: "the attempt was preempted"}
}

// leave gives back all that a live attempt holds, and ends it.
func (s *placement) leave(a *compute.Attempt, e *compute.Execution) {
	s.execution.free(a, e)
	s.quota.changeRate(e.Org, -e.FairPrice())
	a.Ended, a.EndedAt = true, s.view.meta.Now
}

// Victims yields the live attempts of preemptible executions of a priority
// under below, in a fixed order.
func (v *executionTables) Victims(below int) iter.Seq[compute.Work] {
	return func(yield func(compute.Work) bool) {
		for k := range v.victims.Keys(priorityKey{priority: below - 1}) {
			e, _ := v.executions.Get(k.id)
			a, _ := v.attempts.Get(numberKey{k.id.UUID, e.Epoch})
			if !yield(compute.Work{Attempt: a, Execution: e}) {
				return
			}
		}
	}
}

// MinRun returns for how long an attempt may run before it can be preempted.
func (v *clusterState) MinRun() time.Duration { return v.meta.Settings.PreemptMinRun }

// PreemptNotice returns how long before SIGTERM code is notified of its
// preemption.
func (v *clusterState) PreemptNotice() time.Duration { return v.meta.Settings.PreemptNotice }
