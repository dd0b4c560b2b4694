package edge

import (
	"bytes"
	"sync"

	"github.com/valyala/fasthttp"

	"berth/api/edge/limit"
)

// Limits of answers that are not encoded as the client reads them.
const (
	// maxAnswers is how many bytes of larger answers a node holds until they are
	// written, beside those of operators and strangers.
	maxAnswers      = 32 << 20
	answerShare     = 2 // The part that one organization, on a worker one credential, may have: a half.
	operatorAnswers = 8 << 20
	strangerAnswers = 8 << 20
	strangerShare   = 4 // The part of strangerAnswers that one address may have: a quarter.
	// expectedAnswer is the part of its share that an owner must have left
	// before a large answer is built. Whole records have about so many bytes.
	expectedAnswer = 4 << 20
	expectedScrape = 256 << 10 // The same for metrics.
)

// answers bounds the bytes of large answers that wait for clients that read
// slowly.
type answers struct {
	held          *limit.Budget // By organization, on a worker by credential.
	heldOperators *limit.Budget
	heldStrangers *limit.Budget // By address.
}

func newAnswers() answers {
	return answers{
		held:          limit.NewBudget(maxAnswers, maxAnswers/answerShare),
		heldOperators: limit.NewBudget(operatorAnswers, operatorAnswers),
		heldStrangers: limit.NewBudget(strangerAnswers, strangerAnswers/strangerShare),
	}
}

// answerHold returns an empty reservation for the answer to r.
func (c *Core) answerHold(r *Request) limit.Hold {
	hold := limit.Hold{Refusal: limit.ErrManyAnswers}
	need := NeedNothing
	if r.route != nil {
		need = r.route.Need
	}
	switch who := r.Caller; {
	case need == NeedOperator:
		hold.Budget, hold.Owner = c.answers.heldOperators, "operators"
	case who.name() != "":
		hold.Budget, hold.Owner = c.answers.held, who.Actor.Org.String()
	case c.cfg.Relay != nil && (need == NeedCaller || need == NeedUser || need == NeedOrg):
		hold.Budget, hold.Owner = c.answers.held, bearerName(r.bearer)
	default:
		hold.Budget, hold.Owner = c.answers.heldStrangers, r.customer()
	}
	return hold
}

// send sets the body of the answer. A large one is reserved until it is written
// or its connection ends.
func (s *Server) send(ctx *fasthttp.RequestCtx, r *Request, body []byte) error {
	hold := s.answerHold(r)
	if cap(body) > limit.FreeAnswer {
		r.large = cap(body)
		if err := hold.ReserveUpToShare(cap(body)); err != nil {
			return err
		}
	}
	sendHeld(ctx, &hold, body)
	return nil
}

// sendHeld sets the body of the answer, and returns the reservation once it is
// written or its connection ends. fasthttp would keep a copy in its pool.
func sendHeld(ctx *fasthttp.RequestCtx, hold *limit.Hold, body []byte) {
	if !hold.Reserved() {
		ctx.Response.SetBodyRaw(body)
		return
	}
	held := hold.Move()
	ctx.SetBodyStream(&heldBody{
		Reader: bytes.NewReader(body), body: body, release: sync.OnceFunc(func() { held.Shrink(0) }),
	}, len(body))
}

// heldBody is the body of an answer that is there as a whole. fasthttp closes it
// when it is written or its connection ends.
type heldBody struct {
	*bytes.Reader

	body    []byte // All of it.
	release func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.release()
	return nil
}
