package dst

import (
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// Times of proposals.
const (
	callTimeout = 10 * time.Second // For one try.
	retryMin    = 100 * time.Millisecond
	retryMax    = 15 * time.Second
)

// proposal is a command in flight. Its tries are indistinguishable: the state
// recognizes a repeat.
type proposal struct {
	w      *world
	from   int
	cmd    command.Command
	frame  []byte
	until  time.Duration // When to give up; 0 for never.
	wait   time.Duration // Backoff before the next try.
	repeat func() bool   // Called before a retry; it may prevent the retry.
	done   func(ok bool, r command.Result)
	alive  func() bool // Whether the proposing process still lives.
	over   bool
}

// propose has cmd committed through any server that answers, and retries until
// an answer comes.
func (w *world) propose(from int, alive func() bool, limit time.Duration,
	cmd command.Command, done func(ok bool, r command.Result),
) *proposal {
	p := &proposal{w: w, from: from, cmd: cmd, frame: w.encode(cmd), wait: retryMin, done: done, alive: alive}
	if limit > 0 {
		p.until = w.now + limit
	}
	p.try()
	return p
}

// try sends the proposal once, and again if no answer comes.
func (p *proposal) try() {
	w := p.w
	switch {
	case p.over || !p.alive():
		return
	case p.until > 0 && w.now >= p.until:
		p.over = true
		p.done(false, command.Result{})
		return
	}
	sent := *p // A later try must not change the message in flight.
	sent.alive = p.alive
	p.route(&sent)
	wait := p.wait
	p.wait = min(2*p.wait, retryMax)
	if w.leader != nil && !w.net.calm {
		wait = max(wait, w.between(time.Second, callTimeout))
	}
	w.after(wait, func() {
		if !p.over && (p.repeat == nil || p.repeat()) {
			p.try()
		}
	})
}

// route sends a try to a server, which forwards it to the leader.
func (p *proposal) route(sent *proposal) {
	w := p.w
	sent.done = func(_ bool, r command.Result) {
		if !p.over && p.alive() {
			p.over = true
			p.done(true, r)
		}
	}
	s := w.servers[w.random.IntN(len(w.servers))]
	if p.from != outside && w.machines[p.from].server != nil {
		s = w.machines[p.from].server
	}
	w.send(p.from, s.id, func() {
		if s.term != 0 {
			s.submit(sent)
			return
		}
		if leader := w.leader; leader != nil {
			w.send(s.id, leader.id, func() {
				if leader.term != 0 {
					leader.submit(sent)
				}
			})
		}
	})
}

// settle receives an answer.
func (p *proposal) settle(_ uint64, r command.Result) { p.done(true, r) }

// encode returns a command's frame.
func (w *world) encode(cmd command.Command) []byte {
	frame, err := command.Encode(cmd)
	if err != nil {
		w.violate("%T cannot be encoded: %v", cmd, err)
	}
	return frame
}

// termOf returns the term of a leader's command, 0 for other commands.
func termOf(cmd command.Command) uint64 {
	switch c := cmd.(type) {
	case command.CommitPlan:
		return c.Term
	case command.LoseAttempts:
		return c.Term
	case command.SetNodeState:
		return c.Term
	case command.Tick:
		return c.Term
	}
	return 0
}

// restamped returns a leader's command with another term.
func restamped(cmd command.Command, term uint64) command.Command {
	switch c := cmd.(type) {
	case command.CommitPlan:
		c.Term = term
		return c
	case command.LoseAttempts:
		c.Term = term
		return c
	case command.SetNodeState:
		c.Term = term
		return c
	case command.Tick:
		c.Term = term
		return c
	}
	return cmd
}

// final reports whether a repeat would be refused too.
func final(r command.Result) bool {
	return r.Refusal == nil || r.Refusal.Code == compute.CodeConflict || r.Refusal.Code == compute.CodeNotFound
}
