package dst

import (
	"slices"
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fsm"
)

// Times of the leader's duties, as package node has them.
const (
	watchPeriod = time.Second
	tickPeriod  = 30 * time.Second
	proposeWait = 10 * time.Second
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

// watch records which nodes are heard, and gives up the attempts that have ended
// for certain on those that are not, unless too many vanished at once. A new
// leader gives every node its full time.
func (s *server) watch() {
	view := s.state.View()
	braked := len(view.Vanished()) > 0 && s.w.config.Bug != BugNoBrake
	s.counter.Look(s.w.now)
	for _, m := range s.w.machines {
		known, ok := view.Node(m.node)
		if !ok {
			continue
		}
		silent := s.counter.Silent(m.node, max(s.heard[m.id], s.since))
		state := protocol.StateOf(silent)
		if state != known.State {
			s.do(fsm.SetNodeState{Term: s.term, Node: m.node, State: state}, nil)
		}
		if state == compute.NodeDown && !braked {
			if lost := s.overdue(view.Work(m.node), silent); len(lost) > 0 {
				s.do(fsm.LoseAttempts{Term: s.term, Node: m.node, Attempts: lost}, nil)
			}
		}
	}
}

// overdue returns the attempts whose supervisors have ended them for certain.
func (s *server) overdue(work []compute.Work, silent time.Duration) (refs []fsm.AttemptRef) {
	lost := protocol.Lost(work, silent)
	if s.w.config.Bug == BugHastyLoss {
		lost = work
	}
	for _, w := range lost {
		refs = append(refs, fsm.AttemptRef{Execution: w.Attempt.Execution, Epoch: w.Attempt.Epoch})
	}
	return refs
}

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
