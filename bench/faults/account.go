package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// parkedTag marks executions that wait forever: the quota of their tag is too small
// for any of them. They hold credits and never run.
const parkedTag = "parked"

// workingTag marks executions that run briefly and end by themselves with a
// charge.
const workingTag = "working"

// accounts is the workload of grants, holds, releases, charges and balances.
// Grants add credits, submits hold some, stops release them, ends charge for
// the runtime, and reads return the balance.
type accounts struct {
	session *session

	mu     sync.Mutex
	places [accountsAtOnce]*accountPlace
}

// accountsAtOnce is the number of concurrent organizations. workingAtOnce
// limits the running executions of each, because they take GPUs that others
// wait for. Among enoughWork executions, at least one ends with a charge under
// any fault.
const (
	accountsAtOnce = 3
	workingAtOnce  = 2
	enoughWork     = 50
)

// accountPlace is one organization and its executions.
type accountPlace struct {
	org    organization
	object check.Object
	parked []*held // Submitted for certain, and not stopped for certain.

	// Executions that run and have no known end.
	working  []*held
	starting int // Submits in flight.
}

// held is one execution and its held credits.
type held struct {
	op      string
	id      compute.ExecutionID
	release *check.Try // Starts when the credits may first have been released; nil before.
}

func (w *accounts) name() string { return "account" }

func (w *accounts) clients() int { return 6 }

func (w *accounts) prepare(ctx context.Context) error {
	for i := range w.places {
		if err := w.renew(ctx, i, 0); err != nil {
			return err
		}
	}
	return nil
}

// renew creates a new organization in a place.
func (w *accounts) renew(ctx context.Context, place, generation int) error {
	org, err := w.session.newOrganization(ctx, fmt.Sprintf("account%d-%d", place, generation))
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.places[place] = &accountPlace{org: org, object: check.Object{Kind: check.KindAccount, Name: org.slug}}
	return nil
}

func (w *accounts) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 80*time.Millisecond) {
		place := w.place(c.rng.IntN(accountsAtOnce))
		if place == nil {
			continue
		}
		switch n := c.rng.IntN(10); {
		case n < 2:
			w.grant(ctx, c, place)
		case n < 5:
			if c.rng.IntN(4) == 0 && w.mayWork(place) {
				w.work(ctx, c, place)
				continue
			}
			w.hold(ctx, c, place)
		case n < 7:
			w.release(ctx, c, place)
		case n < 8 && w.poll(ctx, c, place):
		default:
			w.balance(ctx, c, place)
		}
	}
}

// place returns an organization that has capacity for another try, or nil.
func (w *accounts) place(i int) *accountPlace {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.places[i]
	if w.session.history.Len(p.object) >= triesPerObject {
		return nil
	}
	return p
}

func (w *accounts) grant(ctx context.Context, c *caller, p *accountPlace) {
	op := c.next()
	amount := compute.Credits(1 + c.rng.Int64N(40_000))
	node := c.any("")
	t := w.session.history.Call(p.object, c.id, check.Grant{Op: op, Amount: amount})
	out, err := c.try(ctx, w.name(), func(ctx context.Context) error {
		return node.Grant(ctx, p.org.slug, amount, op)
	})
	settle(t, out, true)
	if out == refused {
		w.session.unexpected(w.name(), "grant to "+p.org.slug, err)
	}
}

// leastHold pays for one second of the held resources. The API refuses less.
const leastHold compute.Credits = 1_000

// amount returns how much an execution holds.
func (c *caller) amount() compute.Credits { return leastHold + compute.Credits(c.rng.Int64N(30_000)) }

// hold submits an execution that is never placed.
func (w *accounts) hold(ctx context.Context, c *caller, p *accountPlace) {
	op, amount := c.next(), c.amount()
	if one, _ := w.submit(ctx, c, p, op, amount, parkedStart(op, amount)); one != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		p.parked = append(p.parked, one)
	}
}

// mayWork reports whether one more execution may run, and reserves its place.
func (w *accounts) mayWork(p *accountPlace) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p.working)+p.starting >= workingAtOnce {
		return false
	}
	p.starting++
	return true
}

// work submits an execution that runs briefly. It may have ended at any time
// after the submit.
func (w *accounts) work(ctx context.Context, c *caller, p *accountPlace) {
	op, amount := c.next(), c.amount()
	one, asked := w.submit(ctx, c, p, op, amount, workingStart(c, op, amount))
	w.mu.Lock()
	defer w.mu.Unlock()
	p.starting--
	if one != nil {
		one.release = w.session.history.CallAt(p.object, c.id, check.Settle{Op: op}, asked)
		p.working = append(p.working, one)
	}
}

// submit submits an execution that holds amount. If the outcome is unknown, it
// retries a few times at other nodes. All tries share one Idempotency-Key, so
// they are one operation. submit returns the execution if it was submitted for
// certain, else nil, and the time of the first try.
func (w *accounts) submit(
	ctx context.Context, c *caller, p *accountPlace, op string, amount compute.Credits, start client.Start,
) (*held, int64) {
	t := w.session.history.Call(p.object, c.id, check.Hold{Op: op, Amount: amount})
	doubt := false // An earlier try may have taken effect.
	for range 3 {
		node := c.any(p.org.key)
		var started wire.Started
		out, err := c.try(ctx, w.name(), func(ctx context.Context) (err error) {
			started, err = node.Submit(ctx, start)
			return err
		})
		switch {
		case out == done:
			t.Return(check.Held)
			return &held{op: op, id: started.ExecutionID}, t.Called()
		case out == refused && client.CodeOf(err) == "credits_exhausted":
			t.Return(check.Refused)
			return nil, 0
		case out == refused:
			if !doubt {
				t.Drop()
			}
			w.session.unexpected(w.name(), "submit", err)
			return nil, 0
		}
		doubt = doubt || out == unknown
		if !c.pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	if !doubt {
		t.Drop()
	}
	return nil, 0
}

// parkedStart returns an execution that waits and holds amount. A tag names its
// operation.
func parkedStart(op string, amount compute.Credits) client.Start {
	return client.Start{
		Code: "pass", ExecutionType: "h100", Timeout: 600, MaxCredits: &amount,
		Tags: []string{parkedTag, op}, Priority: new(1), Network: compute.NetworkNone.String(),
	}
}

// workingStart returns an execution that runs for less than a second and may be
// retried after a failure.
func workingStart(c *caller, op string, amount compute.Credits) client.Start {
	start := parkedStart(op, amount)
	start.Code = fmt.Sprintf("import time\ntime.sleep(%f)\n", 0.8*c.rng.Float64())
	start.Tags = []string{workingTag, op}
	start.Priority = nil
	start.MaxRetries = c.rng.IntN(3)
	return start
}

// release stops one of the waiting executions. The first caller begins the
// operation, and the caller that sees the stop ends it.
func (w *accounts) release(ctx context.Context, c *caller, p *accountPlace) {
	w.mu.Lock()
	if len(p.parked) == 0 {
		w.mu.Unlock()
		return
	}
	one := p.parked[c.rng.IntN(len(p.parked))]
	if one.release == nil {
		one.release = w.session.history.Call(p.object, c.id, check.Settle{Op: one.op})
	}
	w.mu.Unlock()
	c.next()
	node := c.any(p.org.key)
	out, err := c.relieve(ctx, w.name(), "stop "+one.id.String(), func(ctx context.Context) error {
		return node.Stop(ctx, one.id)
	})
	switch {
	case out == refused && client.CodeOf(err) == "already_ended": // An earlier try stopped it, and its answer was lost.
	case out == refused:
		w.session.unexpected(w.name(), "stop "+one.id.String(), err)
		return
	case out != done:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(p.parked, one); at >= 0 {
		one.release.Return(compute.Credits(0))
		p.parked = slices.Delete(p.parked, at, at+1)
	}
}

// poll reads one of the running executions. An ended one reports its charge.
func (w *accounts) poll(ctx context.Context, c *caller, p *accountPlace) bool {
	w.mu.Lock()
	if len(p.working) == 0 {
		w.mu.Unlock()
		return false
	}
	one := p.working[c.rng.IntN(len(p.working))]
	w.mu.Unlock()
	node := c.any(p.org.key)
	var answer wire.Execution
	err := c.read(ctx, w.name(), func(ctx context.Context) (err error) {
		answer, err = node.Execution(ctx, one.id, 0)
		return err
	})
	if err != nil || !answer.Status.Terminal() {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(p.working, one); at >= 0 {
		var charged compute.Credits
		if answer.Billed != nil {
			charged = *answer.Billed
		}
		one.release.Return(charged)
		p.working = slices.Delete(p.working, at, at+1)
	}
	return true
}

func (w *accounts) balance(ctx context.Context, c *caller, p *accountPlace) {
	node := c.any(p.org.key)
	t := w.session.history.Call(p.object, c.id, check.Balance{})
	var answer wire.Credits
	err := c.read(ctx, w.name(), func(ctx context.Context) (err error) {
		answer, err = node.Credits(ctx)
		return err
	})
	if err != nil {
		t.Drop()
		return
	}
	t.Return(check.Money{Balance: answer.Remaining, Held: answer.Held})
}

// finish checks that something was charged: otherwise the histories do not
// cover charges.
func (w *accounts) finish(context.Context) []check.Violation {
	worked, charged := 0, 0
	for _, p := range w.places {
		b := w.session.final[p.org.slug]
		for _, op := range b.operations() {
			if b.works(op) {
				worked++
			}
			if b.postingsOf(op).settled.Charge > 0 {
				charged++
			}
		}
	}
	if worked < enoughWork || charged > 0 {
		return nil
	}
	return []check.Violation{{
		What: "vacuous", Object: "workload " + w.name(), Detail: fmt.Sprintf("%d executions, and none was charged", worked),
	}}
}
