package fsm

import (
	"time"

	"berth/attempt"
	"berth/compute"
)

// maxDrain is the longest time that a drain may leave what executes.
const maxDrain = 30 * 24 * time.Hour

// drainNode has a node get no new work, or some again. With a deadline, what
// may begin anew elsewhere is asked to make room at once, and what still
// executes by then is ended. The last word counts: a drain without a deadline,
// or the end of the drain, calls the deadline off.
func (s *membership) drainNode(c DrainNode) Result {
	if refusal := s.access.admitOperator(c.Actor); refusal != nil {
		return Result{Refusal: refusal}
	}
	known, ok := s.nodes.Get(c.Node)
	switch {
	case !ok:
		return refuse(compute.CodeNotFound, "node_unknown", "the node is not known")
	case c.Within < 0 || c.Within > maxDrain || !c.Drained && c.Within > 0:
		return refuse(compute.CodeInvalid, "drain_deadline", "a drain ends within %s", maxDrain)
	}
	n := *known
	n.Drained, n.DrainBy = c.Drained, 0
	if c.Within > 0 {
		n.DrainBy = s.meta.Now.Add(c.Within)
		s.moveAway(&n, c.Within)
	}
	s.nodes.put(&n)
	s.judgeBrake()
	r := Result{ID: n.ID.UUID}
	if s.Format() >= formatTrust {
		r.Node = new(s.Show(&n))
	}
	return r
}

// moveAway asks what executes on a node and may begin anew to make room, with
// the usual notice where the deadline leaves it.
func (s *membership) moveAway(n *compute.Node, within time.Duration) {
	for _, w := range s.Work(n.ID) {
		if !attempt.MayLeave(w.Execution) || w.Leaves() {
			continue
		}
		asked, told := *w.Attempt, *w.Execution
		asked.PreemptAt, asked.Notice = s.meta.Now, min(s.PreemptNotice(), within)
		told.Reason = compute.ReasonDrained
		s.putAttempt(&asked)
		s.execution.putExecution(&told)
	}
}

// endDrains stops what still executes on nodes whose drain is due. What was
// asked to make room is on its way. Of the rest, what has not started by then is
// queued again as soon as its node says so (attempt.Decide).
func (s *membership) endDrains() {
	for n := range s.nodes.Values() {
		if !due(n, s.meta.Now) {
			continue
		}
		for _, w := range s.Work(n.ID) {
			if w.Leaves() {
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

// DrainDue reports whether there is something that a Tick at now would end
// because its node's drain is due.
func (v *View) DrainDue(now compute.Instant) bool {
	for n := range v.nodes.Values() {
		if !due(n, now) {
			continue
		}
		for _, w := range v.Work(n.ID) {
			if !w.Leaves() {
				return true
			}
		}
	}
	return false
}

// endsDrained is how an execution ends that its node's drain has stopped and that
// may not begin anew: by no fault of its own, so that it owes nothing.
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
