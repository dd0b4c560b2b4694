package dst

import (
	"fmt"
	"time"

	"berth/compute"
	"berth/fsm/command"
)

// Client behavior.
const (
	submitEvery   = 15 * time.Second // Mean.
	grantEvery    = 2 * time.Minute  // Mean.
	clientTimeout = 5 * time.Minute
	maxTimeout    = 12 * time.Minute
)

// request is one request that a client wants executed once, however often it
// repeats it.
type request struct {
	number    int
	op        command.Op
	actor     command.Actor
	spec      compute.Execution
	execution compute.ExecutionID // The id in the state; zero before.
	answered  compute.ExecutionID // The id in the client's answer.
	forgotten bool                // It ended long ago.
}

// submits makes clients submit executions.
func (w *world) submits() {
	w.after(w.exponential(submitEvery), func() {
		if w.net.calm {
			return
		}
		w.submit()
		w.submits()
	})
}

// submit sends a request until it is answered.
func (w *world) submit() {
	w.numbers++
	actor := w.orgs[w.random.IntN(len(w.orgs))]
	q := &request{number: w.numbers, actor: actor, op: command.Op{ID: compute.OpID{UUID: w.uuid()}, Org: actor.Org}}
	profiles := []string{"cpu", "cpu.2x", "t4", "t4.500m", "t4.250m", "t4.2x", "a100", "a100.2x", "a100.500m"}
	q.spec = compute.Execution{
		Profile: profiles[w.random.IntN(len(profiles))], Timeout: w.between(30*time.Second, maxTimeout),
		Priority: w.random.IntN(3), Preemptible: w.happens(0.5),
	}
	if w.happens(0.4) {
		q.spec.MaxRetries = 1 + w.random.IntN(3)
	}
	if w.happens(0.3) {
		q.spec.DisconnectGrace = w.between(0, 5*time.Minute)
	}
	w.ask(q)
}

// ask sends a request. Each try has the same op and a new execution id, as in
// the API.
func (w *world) ask(q *request) {
	var p *proposal
	next := func() command.Submit {
		c := command.Submit{Op: q.op, Actor: q.actor, Execution: q.spec}
		c.Execution.ID = compute.ExecutionID{UUID: w.uuid()}
		w.oracle.requests[c.Execution.ID] = q
		return c
	}
	p = w.propose(outside, always, clientTimeout, next(), func(ok bool, r command.Result) {
		if ok && r.Refusal == nil {
			w.acknowledge(q, r.Execution)
		}
	})
	p.repeat = func() bool {
		if w.config.Bug == BugForgottenOp {
			q.op.ID = compute.OpID{UUID: w.uuid()}
		}
		p.cmd = next()
		p.frame = w.encode(p.cmd)
		return true
	}
}

func always() bool { return true }

// acknowledge records an answer. Some clients repeat the request, and some stop
// their execution.
func (w *world) acknowledge(q *request, id compute.ExecutionID) {
	if q.answered.IsZero() {
		w.report.Submits++
		q.answered = id
		w.acknowledged = append(w.acknowledged, q)
	}
	if q.answered != id {
		w.violate("request %d was answered with %v and with %v", q.number, q.answered, id)
	}
	if w.happens(0.1) {
		w.after(w.exponential(time.Minute), func() { w.ask(q) })
	}
	if w.happens(0.15) {
		stop := compute.StopGraceful
		if w.happens(0.5) {
			stop = compute.StopHard
		}
		cmd := command.StopExecution{
			Op: command.Op{ID: compute.OpID{UUID: w.uuid()}, Org: q.actor.Org}, Actor: q.actor, Execution: id, Stop: stop,
		}
		w.after(w.exponential(2*time.Minute), func() {
			w.propose(outside, always, clientTimeout, cmd, func(bool, command.Result) {})
		})
	}
}

// grant gives an organization credits, once.
func (w *world) grant() {
	w.after(w.exponential(grantEvery), func() {
		if w.net.calm {
			return
		}
		w.numbers++
		actor := w.orgs[w.random.IntN(len(w.orgs))]
		cmd := command.Grant{
			Op: command.Op{ID: compute.OpID{UUID: w.uuid()}, Org: actor.Org}, Actor: command.Actor{Root: true},
			Org: actor.Org, Amount: compute.Credits(1 + w.random.IntN(1000)), Note: fmt.Sprintf("grant %d", w.numbers),
		}
		w.grants[cmd.Note] = true
		p := w.propose(outside, always, clientTimeout, cmd, func(bool, command.Result) {})
		p.repeat = func() bool {
			if w.config.Bug == BugDoublePost {
				cmd.Op.ID = compute.OpID{UUID: w.uuid()}
				p.cmd = cmd
				p.frame = w.encode(cmd)
			}
			return true
		}
		w.grant()
	})
}
