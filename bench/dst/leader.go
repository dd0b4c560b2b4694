package dst

import (
	"slices"
	"time"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Times of the leader's duties, as in package node.
const (
	watchPeriod = time.Second
	tickPeriod  = 30 * time.Second
	proposeWait = 10 * time.Second
)

// lead performs a leader's duties until its term ends.
func (s *server) lead() {
	s.every(watchPeriod, s.watch)
	s.every(tickPeriod, func() { s.do(command.Tick{Term: s.term}, nil) })
	s.every(watchPeriod, s.wake)
	s.every(watchPeriod, func() {
		if s.state.View().DrainDue(s.clock()) {
			s.do(command.Tick{Term: s.term}, nil)
		}
	})
}

// every repeats a duty during the term.
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

// do proposes a leader's command. Like any proposal it is retried, even if
// another server leads by then.
func (s *server) do(cmd command.Command, done func()) {
	s.w.propose(s.id, s.alive(), proposeWait, cmd, func(bool, command.Result) {
		if done != nil {
			done()
		}
	})
}

// watch records which nodes are up. It then gives up the attempts on down nodes
// that have ended for certain, unless too many nodes vanished at once. A new
// leader gives every node its full timeout. If some nodes are gone and others
// are back, the others wait for the next round, which in package node follows
// at once.
func (s *server) watch() {
	view := s.state.View()
	s.counter.Look(s.w.now)
	silent := make(map[compute.NodeID]protocol.Silence, len(s.w.machines))
	for _, m := range s.w.machines {
		if _, ok := view.Node(m.node); ok {
			heard := max(s.heard[m.id], s.since)
			silent[m.node] = protocol.Silence{
				For: s.counter.Silent(m.node, heard), Heard: s.heard[m.id] > 0 || s.w.config.Bug == BugUnheardUp,
			}
		}
	}
	verdict := protocol.Judge(view, func(id compute.NodeID) (protocol.Silence, bool) {
		d, known := silent[id]
		return d, known
	})
	for _, c := range verdict.Changes {
		s.do(command.SetNodeState{Term: s.term, Node: c.Node, State: c.State}, nil)
	}
	for _, loss := range s.losses(view, verdict, silent) {
		s.w.oracle.checkLosses(view, silent)
		s.giveUp(loss)
	}
}

// giveUp has the state end the attempts of a lost node. The node gets no answer until
// then: with one it would start attempts that the state still has for it.
func (s *server) giveUp(loss protocol.Loss) {
	i := slices.IndexFunc(s.w.machines, func(m *machine) bool { return m.node == loss.Node })
	if s.losing[i] {
		return
	}
	s.losing[i] = true
	term, alive := s.term, s.alive()
	leads := func() bool { return alive() && s.term == term }
	lose := command.LoseAttempts{Term: s.term, Node: loss.Node, Attempts: refsOf(loss.Work)}
	s.w.propose(s.id, leads, 0, lose, func(bool, command.Result) { s.losing[i] = false })
}

// losses returns the attempts that the leader gives up: those of the verdict,
// or those of a planted bug.
func (s *server) losses(view *fsm.View, verdict protocol.Verdict, silent map[compute.NodeID]protocol.Silence,
) []protocol.Loss {
	bug := s.w.config.Bug
	if bug != BugHastyLoss && bug != BugNoBrake && bug != BugEarlyJudge {
		return verdict.Losses
	}
	if len(verdict.Changes) > 0 && bug != BugEarlyJudge {
		return nil
	}
	var losses []protocol.Loss
	for _, m := range s.w.machines {
		node, ok := view.Node(m.node)
		held := ok && bug != BugNoBrake && protocol.Holds(view.Brake(), node)
		if !ok || held || silent[m.node].For <= protocol.NodeTTL {
			continue
		}
		lost := protocol.Lost(view.Work(m.node), silent[m.node].For)
		if bug == BugHastyLoss {
			lost = view.Work(m.node)
		}
		if len(lost) > 0 {
			losses = append(losses, protocol.Loss{Node: m.node, Work: lost})
		}
	}
	if bug == BugNoBrake && len(losses) > 0 && len(view.Vanished()) > 0 {
		s.do(command.SetBrake{Actor: command.Actor{Root: true}, Release: true}, nil)
	}
	return losses
}

// refsOf returns references to attempts.
func refsOf(work []compute.Work) (refs []command.AttemptRef) {
	for _, w := range work {
		refs = append(refs, command.AttemptRef{Execution: w.Attempt.Execution, Epoch: w.Attempt.Epoch})
	}
	return refs
}

// wake schedules packing of the newest view.
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

// pack computes a plan and commits it, one at a time.
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
	s.do(command.CommitPlan{Term: s.term, ViewIndex: view.Index(), Plan: plan}, func() {
		if s.term == term {
			s.planning = false
			s.wake()
		}
	})
}
