package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// markedTag marks executions whose code leaves marks.
const markedTag = "marked"

// Long code outlives a lease and the leader's margin behind it, so that its
// attempts are lost with their nodes and restart elsewhere. Few run at a time:
// they leave GPUs to others, and the end of a run stops them without delay.
const (
	longAtOnce = 4
	longWork   = 45 // Seconds; up to a third is added.
)

// executionLoad is the workload of executions that really run: clients submit
// them, poll them, stop some and leave most to end. Their code leaves marks on
// this machine.
type executionLoad struct {
	session *session
	org     organization

	mu   sync.Mutex
	live []*execution
	all  []*execution // Acknowledged executions.
	// hooks holds the operations whose executions have a callback, acknowledged
	// or not.
	hooks map[string]bool
	// long holds the operations with long code and no known end.
	long map[string]bool
}

// execution is one execution from its submit on.
type execution struct {
	op     string
	id     compute.ExecutionID
	object check.Object
	long   bool
}

// callbackURL has no listener: callbacks are recorded, not delivered.
const callbackURL = "https://callback.example/hook"

func (w *executionLoad) name() string { return "life" }

func (w *executionLoad) clients() int { return 6 }

func (w *executionLoad) prepare(ctx context.Context) (err error) {
	if w.org, err = w.session.newOrganization(ctx, "lives"); err != nil {
		return err
	}
	return w.session.admin.Grant(ctx, w.org.slug, 1_000_000*compute.Credit, "load")
}

func (w *executionLoad) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 250*time.Millisecond) {
		one := w.pick(c)
		switch n := c.rng.IntN(10); {
		case one == nil || n < 2:
			w.submit(ctx, c)
		case n < 9 || one.long: // Long code should lose its node, not be stopped.
			w.poll(ctx, c, one)
		default:
			w.stop(ctx, c, one)
		}
	}
}

// pick returns one of the followed executions, or nil if there are too few.
func (w *executionLoad) pick(c *caller) *execution {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.live) < 4 {
		return nil
	}
	return w.live[c.rng.IntN(len(w.live))]
}

// start returns an execution that uses a whole GPU or none. It runs briefly, or
// for long while few long ones run.
func (w *executionLoad) start(c *caller, op string) (s client.Start, long bool) {
	if w.takeLong(op) {
		return startLong(c.rng, op), true
	}
	work := 0.2 + 3*c.rng.Float64()
	if c.rng.IntN(8) == 0 {
		work = 8 + 8*c.rng.Float64()
	}
	code := 0
	if c.rng.IntN(10) == 0 {
		code = 3
	}
	s = client.Start{
		Code: fmt.Sprintf(check.Code, work, code), Timeout: 60, Tags: []string{markedTag, op},
		Network: compute.NetworkNone.String(),
	}
	s.ExecutionType = []string{"", "h100", "h100", "h100.2x"}[c.rng.IntN(4)]
	if c.rng.IntN(3) == 0 {
		s.MaxRetries = 1 + c.rng.IntN(3)
	}
	if c.rng.IntN(3) == 0 {
		s.CallbackURLs = []string{callbackURL}
	}
	return s, false
}

// startLong returns an execution that runs longer than a lease and may be
// retried when it is lost.
func startLong(rng *rand.Rand, op string) client.Start {
	return client.Start{
		Code:    fmt.Sprintf(check.Code, longWork*(1+rng.Float64()/3), 0),
		Timeout: 4 * longWork, Tags: []string{markedTag, op}, Network: compute.NetworkNone.String(),
		ExecutionType: []string{"", "h100"}[rng.IntN(2)], MaxRetries: 1 + rng.IntN(3),
	}
}

// takeLong reports whether an operation gets long code, and counts it.
func (w *executionLoad) takeLong(op string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.long) >= longAtOnce {
		return false
	}
	w.long[op] = true
	return true
}

// submit submits an execution. It retries at other nodes until the outcome is
// known or the run ends.
func (w *executionLoad) submit(ctx context.Context, c *caller) {
	op := c.next()
	start, long := w.start(c, op)
	if len(start.CallbackURLs) > 0 {
		w.mu.Lock()
		w.hooks[op] = true
		w.mu.Unlock()
	}
	o := check.Object{Kind: check.KindExecution, Name: op}
	for ctx.Err() == nil {
		node := c.any(w.org.key)
		t := w.session.history.Call(o, c.id, check.Submit{})
		var started wire.Started
		out, err := c.try(ctx, w.name(), func(ctx context.Context) (err error) {
			started, err = node.Submit(ctx, start)
			return err
		})
		settle(t, out, started.ExecutionID)
		switch out {
		case done:
			one := &execution{op: op, id: started.ExecutionID, object: o, long: long}
			w.mu.Lock()
			w.live, w.all = append(w.live, one), append(w.all, one)
			w.mu.Unlock()
			return
		case refused:
			w.session.unexpected(w.name(), "submit", err)
			w.mu.Lock()
			delete(w.long, op)
			w.mu.Unlock()
			return
		case unknown, unsent, full:
			c.pause(ctx, 100*time.Millisecond)
		}
	}
}

// poll reads the state of an execution.
func (w *executionLoad) poll(ctx context.Context, c *caller, one *execution) {
	node := c.any(w.org.key)
	t := w.session.history.Call(one.object, c.id, check.Status{ID: one.id})
	var answer wire.Execution
	err := c.read(ctx, w.name(), func(ctx context.Context) (err error) {
		answer, err = node.Execution(ctx, one.id, 0)
		return err
	})
	switch refusal, _ := errors.AsType[*client.Error](err); {
	case err == nil:
		t.Return(observationOf(&answer.ExecutionSummary, answer.Attempts))
		if answer.Status.Terminal() {
			w.forget(one)
		}
	case refusal != nil && refusal.Status == http.StatusNotFound:
		t.Return(check.Missing{})
	default:
		t.Drop()
	}
}

// forget stops following an execution that was seen ended a few times.
func (w *executionLoad) forget(one *execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.long, one.op)
	if at := slices.Index(w.live, one); at >= 0 && w.session.history.Len(one.object) > 4 {
		w.live = slices.Delete(w.live, at, at+1)
	}
}

// stop requests the end of an execution.
func (w *executionLoad) stop(ctx context.Context, c *caller, one *execution) {
	c.next()
	w.session.noteStop(one.id)
	node := c.any(w.org.key)
	out, err := c.relieve(ctx, w.name(), "stop "+one.id.String(), func(ctx context.Context) error {
		if c.rng.IntN(2) == 0 {
			return node.Abort(ctx, one.id)
		}
		return node.Stop(ctx, one.id)
	})
	if out == refused && client.CodeOf(err) != "already_ended" && client.CodeOf(err) != "stopping" {
		w.session.unexpected(w.name(), "stop "+one.id.String(), err)
	}
}

// finish checks that every acknowledged execution exists and that the outbox
// has a row for each end that needs a callback.
func (w *executionLoad) finish(context.Context) []check.Violation {
	var wrong []check.Violation
	b := w.session.final[w.org.slug]
	for _, one := range w.all {
		e, there := b.executions[one.id.String()]
		if !there {
			wrong = append(wrong, check.Violation{
				What: "lost", Object: "execution " + one.id.String(),
				Detail: "its submit was acknowledged, and the cluster does not know the execution",
			})
			continue
		}
		if b.byTag[one.op] != one.id.String() {
			wrong = append(wrong, check.Violation{
				What: "two executions", Object: "execution " + one.id.String(),
				Detail: "its Idempotency-Key also made another one: " + b.byTag[one.op],
			})
		}
		t := w.session.history.Call(one.object, -1, check.Status{ID: one.id})
		t.Return(observationOf(&e, nil))
	}
	wrong = append(wrong, w.outbox(b)...)
	return append(wrong, w.duplicates(b)...)
}

// outbox compares the number of outbox rows with the number of ended executions
// that have a callback. The API does not report the execution of a row. One
// missing and one surplus row together therefore go unnoticed.
func (w *executionLoad) outbox(b *finalState) []check.Violation {
	due := 0
	for _, e := range b.executions {
		if e.Metadata != nil && slices.ContainsFunc(e.Metadata.Tags, func(tag string) bool { return w.hooks[tag] }) {
			due++
		}
	}
	if w.session.callbacks == due {
		return nil
	}
	return []check.Violation{{
		What: "callbacks", Object: "outbox",
		Detail: fmt.Sprintf("%d rows, %d executions that ended have one", w.session.callbacks, due),
	}}
}

// duplicates returns a violation for each Idempotency-Key that made more than
// one execution.
func (w *executionLoad) duplicates(b *finalState) []check.Violation {
	var wrong []check.Violation
	count := map[string]int{}
	for _, e := range b.executions {
		if e.Metadata == nil || !slices.Contains(e.Metadata.Tags, markedTag) {
			continue
		}
		for _, tag := range e.Metadata.Tags {
			if tag == markedTag {
				continue
			}
			if count[tag]++; count[tag] == 2 {
				wrong = append(wrong, check.Violation{
					What: "two executions", Object: "execution " + e.ExecutionID.String(),
					Detail: "another one has its Idempotency-Key",
				})
			}
		}
	}
	return wrong
}
