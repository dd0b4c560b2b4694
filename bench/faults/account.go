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

// parkedTag marks executions that wait for ever: their tag may hold less than
// any of them needs. They set credits aside and never run.
const parkedTag = "parked"

// accounts is the workload of grants, holds, releases and balances: credits are
// given, submits set some aside, stops give them back, and reads tell.
type accounts struct {
	session *session

	mu     sync.Mutex
	places [accountsAtOnce]*accountPlace
}

// accountsAtOnce is how many organizations there are at a time.
const accountsAtOnce = 3

// accountPlace is one organization and what it holds.
type accountPlace struct {
	org    organization
	object check.Object
	parked []*parked // What was surely submitted and not surely stopped.
}

// parked is one execution that waits.
type parked struct {
	op      string
	id      compute.ExecutionID
	release *check.Try // From the first time that it was asked to stop; nil before.
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

// renew puts a new organization in a place.
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
			w.hold(ctx, c, place)
		case n < 7:
			w.release(ctx, c, place)
		default:
			w.balance(ctx, c, place)
		}
	}
}

// place returns an organization that can take another try, nil for none.
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
		w.session.odd(w.name(), "grant to "+p.org.slug, err)
	}
}

// leastHold buys a second of what is held for: less is refused.
const leastHold compute.Credits = 1_000

// hold submits an execution that is never placed. What is not known to have
// been submitted is asked for again at other nodes, a few times: all of that is
// one operation, because it has one Idempotency-Key.
func (w *accounts) hold(ctx context.Context, c *caller, p *accountPlace) {
	op := c.next()
	amount := leastHold + compute.Credits(c.rng.Int64N(30_000))
	start := parkedStart(op, amount)
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
			w.mu.Lock()
			p.parked = append(p.parked, &parked{op: op, id: started.ExecutionID})
			w.mu.Unlock()
			return
		case out == refused && client.CodeOf(err) == "credits_exhausted":
			t.Return(check.Refused)
			return
		case out == refused:
			if !doubt {
				t.Drop()
			}
			w.session.odd(w.name(), "submit", err)
			return
		}
		doubt = doubt || out == unknown
		if !c.pause(ctx, 100*time.Millisecond) {
			break
		}
	}
	if !doubt {
		t.Drop()
	}
}

// parkedStart returns an execution that waits and sets amount aside. A tag says
// which operation it is of.
func parkedStart(op string, amount compute.Credits) client.Start {
	return client.Start{
		Code: "pass", ExecutionType: "h100", Timeout: 600, MaxCredits: &amount,
		Tags: []string{parkedTag, op}, Priority: new(1), Network: compute.NetworkNone.String(),
	}
}

// release stops one of the executions that wait. Whoever asks first begins the
// operation, and whoever learns that it has stopped ends it.
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
	case out == refused && client.CodeOf(err) == "already_ended": // By a try of which the answer was lost.
	case out == refused:
		w.session.odd(w.name(), "stop "+one.id.String(), err)
		return
	case out != done:
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := slices.Index(p.parked, one); at >= 0 {
		one.release.Return(true)
		p.parked = slices.Delete(p.parked, at, at+1)
	}
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

func (w *accounts) finish(context.Context) []check.Violation { return nil }
