package dst

import (
	"slices"
	"time"

	"berth/compute"
	"berth/fsm"
)

// Times of the leader's duties, as package node has them.
const (
	nodeTTL            = 15 * time.Second
	lossMargin         = 10 * time.Second
	watchPeriod        = time.Second
	tickPeriod         = 30 * time.Second
	proposeWait        = 10 * time.Second
	minDisconnectGrace = 15 * time.Second
)

// lead does the duties of a leader until its term ends.
func (s *server) lead() {
	s.every(watchPeriod, s.watch)
	s.every(tickPeriod, func() { s.do(fsm.Tick{Term: s.term}, nil) })
	s.every(watchPeriod, s.wake)
}

// every repeats a duty while the term lasts.
func (s *server) every(period time.Duration, duty func()) {
	term := s.term
	var again func()
	again = s.guard(func() {
		if s.term != term {
			return
		}
		duty()
		s.w.after(period, again)
	})
	s.w.after(s.w.between(0, period), again)
}

// do proposes a command of the leader's own. Like any proposal it is tried
// again, also when another server leads by then.
func (s *server) do(cmd fsm.Command, done func()) {
	s.w.propose(s.id, s.alive(), proposeWait, cmd, func(bool, fsm.Result) {
		if done != nil {
			done()
		}
	})
}

// silent returns for how long a node was not heard. A new leader gives every
// node its full time.
func (s *server) silent(node int) time.Duration { return s.w.now - max(s.heard[node], s.since) }

// watch records which nodes are heard, and ends the attempts of those that were
// silent for longer than their executions' grace.
func (s *server) watch() {
	view := s.state.View()
	for _, m := range s.w.machines {
		known, ok := view.Node(m.node)
		if !ok {
			continue
		}
		silent, state := s.silent(m.id), compute.NodeUp
		if silent > nodeTTL {
			state = compute.NodeDown
		}
		if state != known.State {
			s.do(fsm.SetNodeState{Term: s.term, Node: m.node, State: state}, nil)
		}
		if state == compute.NodeDown {
			if lost := s.overdue(view.Work(m.node), silent); len(lost) > 0 {
				s.do(fsm.LoseAttempts{Term: s.term, Node: m.node, Attempts: lost}, nil)
			}
		}
	}
}

// overdue returns the attempts whose supervisors have killed them for certain.
func (s *server) overdue(work []compute.Work, silent time.Duration) (lost []fsm.AttemptRef) {
	for _, w := range work {
		limit := graceOf(w.Execution) + lossMargin
		if s.w.config.Bug == BugHastyLoss {
			limit = nodeTTL
		}
		if silent > limit {
			lost = append(lost, fsm.AttemptRef{Execution: w.Attempt.Execution, Epoch: w.Attempt.Epoch})
		}
	}
	return lost
}

func graceOf(e *compute.Execution) time.Duration { return max(e.DisconnectGrace, minDisconnectGrace) }

// wake has the newest view packed soon.
func (s *server) wake() {
	if s.waking || s.planning || !s.ready {
		return
	}
	s.waking = true
	term := s.term
	s.w.after(s.w.between(time.Millisecond, 5*time.Millisecond), s.guard(func() {
		if s.term == term {
			s.waking = false
			s.pack()
		}
	}))
}

// pack computes a plan and has it committed, one at a time.
func (s *server) pack() {
	view := s.state.View()
	if s.planning || view.Index() == s.packed {
		return
	}
	s.packed = view.Index()
	plan := s.packer.Pack(view)
	if plan.Empty() {
		return
	}
	s.planning = true
	term := s.term
	plan.Assignments = slices.Clip(plan.Assignments)
	s.do(fsm.CommitPlan{Term: s.term, ViewIndex: view.Index(), Plan: plan}, func() {
		if s.term == term {
			s.planning = false
			s.wake()
		}
	})
}
