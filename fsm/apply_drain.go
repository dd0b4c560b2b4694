package fsm

import (
	"time"

	"berth/attempt"
	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
)

// maxDrain is the longest time that a drain may leave running attempts.
const maxDrain = 30 * 24 * time.Hour

// drainNode stops or resumes the placement of new work on a node. With a deadline,
// attempts that can be rescheduled are preempted at once, and the others are ended
// at the deadline. The newest drain wins: a drain without a deadline, or the end
// of the drain, removes the deadline.
func (s *membership) drainNode(c command.DrainNode) command.Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	known, ok := s.view.nodes.Get(c.Node)
	switch {
	case !ok:
		return refuse(compute.CodeNotFound, "node_unknown", "the node is not known")
	case c.Within < 0 || c.Within > maxDrain || !c.Drained && c.Within > 0:
		return refuse(compute.CodeInvalid, "drain_deadline", "a drain ends within %s", maxDrain)
	}
	n := *known
	n.Drained, n.DrainBy = c.Drained, 0
	if c.Within > 0 {
		n.DrainBy = s.view.meta.Now.Add(c.Within)
		s.moveAway(&n, c.Within)
	}
	s.view.nodes.put(&n)
	s.judgeBrake()
	r := command.Result{ID: n.ID.UUID}
	if s.view.Format() >= format.Trust {
		r.Node = new(s.view.Show(&n))
	}
	return r
}

// moveAway preempts the attempts of a node that can be rescheduled, with the usual
// notice where the deadline allows it. Replicas that are ready serve on until another
// one is ready in their place, or to the deadline.
func (s *membership) moveAway(n *compute.Node, within time.Duration) {
	for _, w := range s.view.Work(n.ID) {
		serves := w.Execution.Ready && s.view.Format() >= format.Updates
		if !attempt.MayLeave(w.Execution) || w.Stopping() || serves {
			continue
		}
		preempted, execution := *w.Attempt, *w.Execution
		preempted.PreemptAt, preempted.Notice = s.view.meta.Now, min(s.view.PreemptNotice(), within)
		execution.Reason = compute.ReasonDrained
		s.view.putAttempt(&preempted)
		s.execution.putExecution(&execution)
	}
}

// endDrains stops the executions on nodes whose drain is due. Preempted attempts
// are already ending. An execution that has not started by then is queued again
// as soon as its node reports so (attempt.Decide).
func (s *membership) endDrains() {
	for n := range s.view.nodes.Values() {
		if !due(n, s.view.meta.Now) {
			continue
		}
		for _, w := range s.view.Work(n.ID) {
			if w.Stopping() {
				continue
			}
			e := *w.Execution
			e.Stop, e.Reason = compute.StopGraceful, compute.ReasonDrained
			s.execution.putExecution(&e)
		}
	}
}

// due reports whether a node is drained with a deadline that has passed.
func due(n *compute.Node, now compute.Instant) bool { return !n.DrainBy.IsZero() && n.DrainBy <= now }

// DrainOver reports whether the deadline of a node's drain has passed.
func (v *View) DrainOver(id compute.NodeID, now compute.Instant) bool {
	n, ok := v.nodes.Get(id)
	return ok && due(n, now)
}

// DrainDue reports whether there is something that a Tick at now would end
// because its node's drain is due.
func (v *View) DrainDue(now compute.Instant) bool {
	for n := range v.nodes.Values() {
		if !due(n, now) {
			continue
		}
		for _, w := range v.Work(n.ID) {
			if !w.Stopping() {
				return true
			}
		}
	}
	return false
}

// endsDrained returns how an execution ends that was stopped by the drain of its
// node and cannot be rescheduled. It is not charged: the fault is not its own.
func endsDrained() ending {
	return ending{
		compute.StatusSystemFailure, compute.ReasonDrained,
		"its node was drained, and the drain's deadline had passed",
	}
}

// afterDrain is how an execution goes on whose node was drained.
func afterDrain() again {
	return again{ended: compute.ReasonDrained, waits: compute.ReasonDrained, note: "its node was drained"}
}
