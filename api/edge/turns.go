package edge

import (
	"errors"

	"berth/api/edge/limit"
	"berth/loop"
)

// Limits of requests that take much more memory than their bytes, while they are
// served.
const (
	answersAtOnce = 8 // Large answers that are built at a time, one of each organization.
	scrapesAtOnce = 1 // The same for strangers.
	decodesAtOnce = 4 // Large bodies that are decoded at a time, one of each organization.
	largeBody     = 256 << 10

	maxTurns       = 1024 // Requests that have or await a turn of one kind,
	maxTurnsOfEach = 256  // and those of one organization or address.

	// largeFactor is how many bytes of garbage a byte of a large body or answer
	// leaves, about.
	largeFactor = 6
)

// turns lets few requests at a time build large answers or decode large bodies.
type turns struct {
	answers *loop.FairLimiter[string] // By organization.
	scrapes *loop.FairLimiter[string] // By address.
	decodes *loop.FairLimiter[string] // By organization.
	garbage func(bytes int)           // Counts what a request leaves on the heap.
}

func newTurns() *turns {
	limiter := func(most int) *loop.FairLimiter[string] {
		return loop.NewFairLimiter[string](most).Bound(maxTurns, maxTurnsOfEach)
	}
	return &turns{
		answers: limiter(answersAtOnce), scrapes: limiter(scrapesAtOnce), decodes: limiter(decodesAtOnce),
		garbage: limit.NewGarbage().Add,
	}
}

// AwaitTurn waits until the request may build a large answer. Its turn ends when
// the answer is encoded. A client that hangs up while it waits gets no answer.
func (c *Core) AwaitTurn(r *Request) error {
	turns, owner, expected := c.turns.answers, r.Caller.Actor.Org.String(), expectedAnswer
	if r.Caller.name() == "" && !r.Caller.Actor.Root {
		turns, owner, expected = c.turns.scrapes, r.customer(), expectedScrape
	}
	if err := c.await(r, turns, owner, limit.ErrManyAnswers); err != nil {
		return err
	}
	if hold := c.answerHold(r); !hold.Budget.Fits(hold.Owner, expected) {
		return limit.ErrManyAnswers() // It would be built and not sent.
	}
	return nil
}

// awaitDecode waits until the request's body may be decoded, if it is large. Its
// turn ends with the answer, because the handler uses what is decoded.
func (c *Core) awaitDecode(r *Request) error {
	if len(r.raw) <= largeBody || r.route.Raw && r.route.Body == nil {
		return nil
	}
	return c.await(r, c.turns.decodes, r.Caller.Actor.Org.String(), limit.ErrManyBodies)
}

// await waits for a turn of one kind, unless the request has one.
func (c *Core) await(r *Request, turns *loop.FairLimiter[string], owner string, refusal func() error) error {
	if r.turn != nil {
		return nil
	}
	if done, ok := turns.TryTake(owner); ok {
		r.turn = done
		return nil
	}
	c.metrics.waiting.Inc()
	defer c.metrics.waiting.Dec()
	ctx, stop := r.untilHangUp()
	defer stop()
	done, err := turns.Take(ctx, owner)
	switch {
	case errors.Is(err, loop.ErrFull):
		return refusal()
	case err != nil:
		return err
	case ctx.Err() != nil:
		done()
		return ctx.Err()
	}
	r.turn = done
	return nil
}

// endTurn ends the turn of a request, if it has one.
func (c *Core) endTurn(r *Request) {
	if r.turn == nil {
		return
	}
	c.leave(r)
	r.turn()
	r.turn = nil
}

// leave counts what the request leaves on the heap.
func (c *Core) leave(r *Request) {
	large := max(len(r.raw), r.large)
	r.raw, r.Body = nil, nil
	if large > largeBody {
		c.turns.garbage(largeFactor * large)
	}
}

// dropBody counts the part of a large body that came before it was refused: its
// buffer, and the smaller ones before that.
func (c *Core) dropBody(r *Request) {
	if cap(r.raw) > largeBody {
		c.turns.garbage(2 * cap(r.raw))
	}
	r.raw = nil
}
