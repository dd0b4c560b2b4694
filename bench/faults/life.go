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

// Long code outlives a lease and what the leader waits behind it, so that its
// attempts are lost with their nodes and begin anew elsewhere. There are few at
// a time: they leave GPUs to others, and hold up no end of a run, where they
// are stopped.
const (
	longLives = 4
	longWork  = 45 // Seconds, and up to a third more.
)

// lives is the workload of executions that really run: submitted, looked at,
// some of them stopped, most of them left to end. Their code leaves marks on
// this machine.
type lives struct {
	session *session
	org     organization

	mu   sync.Mutex
	live []*oneLife
	all  []*oneLife // That were acknowledged.
	// hooks are the operations whose executions have a callback, acknowledged or
	// not.
	hooks map[string]bool
	// long are the operations with long code that was not seen to have ended.
	long map[string]bool
}

// oneLife is one execution from its submit on.
type oneLife struct {
	op     string
	id     compute.ExecutionID
	object check.Object
	long   bool
}

// callbackURL is where nobody listens: callbacks are recorded, not delivered.
const callbackURL = "https://callback.example/hook"

func (w *lives) name() string { return "life" }

func (w *lives) clients() int { return 6 }

func (w *lives) prepare(ctx context.Context) (err error) {
	if w.org, err = w.session.newOrganization(ctx, "lives"); err != nil {
		return err
	}
	return w.session.admin.Grant(ctx, w.org.slug, 1_000_000*compute.Credit, "all that it needs")
}

func (w *lives) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 250*time.Millisecond) {
		one := w.pick(c)
		switch n := c.rng.IntN(10); {
		case one == nil || n < 2:
			w.submit(ctx, c)
		case n < 9 || one.long: // It is to lose its node, not to be stopped.
			w.look(ctx, c, one)
		default:
			w.stop(ctx, c, one)
		}
	}
}

// pick returns one of the executions that are followed, nil when there are too
// few.
func (w *lives) pick(c *caller) *oneLife {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.live) < 4 {
		return nil
	}
	return w.live[c.rng.IntN(len(w.live))]
}

// start returns an execution that works on a whole GPU or none: for a moment,
// or for long while there are few such.
func (w *lives) start(c *caller, op string) (s client.Start, long bool) {
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

// startLong returns an execution that works for longer than a lease lasts, and
// may begin anew when it is lost.
func startLong(rng *rand.Rand, op string) client.Start {
	return client.Start{
		Code:    fmt.Sprintf(check.Code, longWork*(1+rng.Float64()/3), 0),
		Timeout: 4 * longWork, Tags: []string{markedTag, op}, Network: compute.NetworkNone.String(),
		ExecutionType: []string{"", "h100"}[rng.IntN(2)], MaxRetries: 1 + rng.IntN(3),
	}
}

// takeLong reports whether the code of an operation is to be long, and counts
// it then.
func (w *lives) takeLong(op string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.long) >= longLives {
		return false
	}
	w.long[op] = true
	return true
}

// submit submits an execution, again at other nodes until it is known how it
// went or the run is over.
func (w *lives) submit(ctx context.Context, c *caller) {
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
			one := &oneLife{op: op, id: started.ExecutionID, object: o, long: long}
			w.mu.Lock()
			w.live, w.all = append(w.live, one), append(w.all, one)
			w.mu.Unlock()
			return
		case refused:
			w.session.odd(w.name(), "submit", err)
			w.mu.Lock()
			delete(w.long, op)
			w.mu.Unlock()
			return
		case unknown, unsent, full:
			c.pause(ctx, 100*time.Millisecond)
		}
	}
}

// look reads where an execution stands.
func (w *lives) look(ctx context.Context, c *caller, one *oneLife) {
	node := c.any(w.org.key)
	t := w.session.history.Call(one.object, c.id, check.Status{ID: one.id})
	var answer wire.Execution
	err := c.read(ctx, w.name(), func(ctx context.Context) (err error) {
		answer, err = node.Execution(ctx, one.id, 0)
		return err
	})
	switch refusal, _ := errors.AsType[*client.Error](err); {
	case err == nil:
		t.Return(standingOf(&answer.ExecutionSummary, answer.Attempts))
		if answer.Status.Terminal() {
			w.forget(one)
		}
	case refusal != nil && refusal.Status == http.StatusNotFound:
		t.Return(check.Missing{})
	default:
		t.Drop()
	}
}

// forget follows an execution no more once it was seen to have ended a few
// times.
func (w *lives) forget(one *oneLife) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.long, one.op)
	if at := slices.Index(w.live, one); at >= 0 && w.session.history.Len(one.object) > 4 {
		w.live = slices.Delete(w.live, at, at+1)
	}
}

// stop asks for an end.
func (w *lives) stop(ctx context.Context, c *caller, one *oneLife) {
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
		w.session.odd(w.name(), "stop "+one.id.String(), err)
	}
}

// finish looks whether everything that was acknowledged is there, and whether
// who must hear of its end is written down.
func (w *lives) finish(context.Context) []check.Violation {
	var wrong []check.Violation
	b := w.session.books[w.org.slug]
	for _, one := range w.all {
		e, there := b.executions[one.id.String()]
		if !there {
			wrong = append(wrong, check.Violation{
				What: "lost", Object: "execution " + one.id.String(),
				Detail: "its submit was acknowledged, and the cluster does not know it",
			})
			continue
		}
		if b.byTag[one.op] != one.id.String() {
			wrong = append(wrong, check.Violation{
				What: "two executions", Object: "execution " + one.id.String(),
				Detail: "its Idempotency-Key made another one as well: " + b.byTag[one.op],
			})
		}
		t := w.session.history.Call(one.object, -1, check.Status{ID: one.id})
		t.Return(standingOf(&e, nil))
	}
	wrong = append(wrong, w.outbox(b)...)
	return append(wrong, w.twice(b)...)
}

// outbox compares how many rows it has with how many executions have ended of
// which somebody must hear. That is a number alone: the API does not tell of
// which execution a row is, so one that is missing and one too many together
// do not show.
func (w *lives) outbox(b *books) []check.Violation {
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

// twice returns which Idempotency-Keys made more than one execution.
func (w *lives) twice(b *books) []check.Violation {
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
