package edge

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"berth/compute"
)

// Limits of answers that are not encoded as the client reads them.
const (
	// freeAnswer is the size of the largest answer that needs no reservation.
	freeAnswer = 16 << 10
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
	held          *budget // By organization, on a worker by credential.
	heldOperators *budget
	heldStrangers *budget // By address.
}

func newAnswers() answers {
	return answers{
		held:          newBudget(maxAnswers, maxAnswers/answerShare),
		heldOperators: newBudget(operatorAnswers, operatorAnswers),
		heldStrangers: newBudget(strangerAnswers, strangerAnswers/strangerShare),
	}
}

// errManyAnswers refuses an answer that the node has no memory for.
func errManyAnswers() error {
	return compute.Errorf(compute.CodeUnavailable,
		"This node holds too many large answers: read them, and repeat the request later or at another node.").
		Named(manyBytes).Retry(time.Second)
}

// isManyAnswers reports whether err is errManyAnswers.
func isManyAnswers(err error) bool {
	e, coded := errors.AsType[*compute.Error](err)
	return coded && e.Detail == manyBytes
}

// answerHold returns an empty reservation for the answer to r.
func (c *Core) answerHold(r *Request) bodyHold {
	hold := bodyHold{refusal: errManyAnswers}
	need := NeedNothing
	if r.route != nil {
		need = r.route.Need
	}
	switch who := r.Caller; {
	case need == NeedOperator:
		hold.budget, hold.owner = c.answers.heldOperators, "operators"
	case who.name() != "":
		hold.budget, hold.owner = c.answers.held, who.Actor.Org.String()
	case c.cfg.Relay != nil && (need == NeedCaller || need == NeedUser || need == NeedOrg):
		hold.budget, hold.owner = c.answers.held, bearerName(r.bearer)
	default:
		hold.budget, hold.owner = c.answers.heldStrangers, r.customer()
	}
	return hold
}

// send sets the body of the answer. A large one is reserved until it is written
// or its connection ends.
func (s *Server) send(ctx *fasthttp.RequestCtx, r *Request, body []byte) error {
	hold := s.answerHold(r)
	if cap(body) > freeAnswer {
		r.large = cap(body)
		if err := hold.reserveUpToShare(cap(body)); err != nil {
			return err
		}
	}
	hold.send(ctx, body)
	return nil
}

// send sets the body of the answer, and returns the reservation once it is
// written or its connection ends. fasthttp would keep a copy in its pool.
func (h *bodyHold) send(ctx *fasthttp.RequestCtx, body []byte) {
	if h.bytes == 0 {
		ctx.Response.SetBodyRaw(body)
		return
	}
	held := *h
	h.bytes = 0
	ctx.SetBodyStream(&heldBody{
		Reader: bytes.NewReader(body), release: sync.OnceFunc(func() { held.shrink(0) }),
	}, len(body))
}

// heldBody is the body of an answer that is there as a whole. fasthttp closes it
// when it is written or its connection ends.
type heldBody struct {
	*bytes.Reader

	release func()
}

// Close implements io.Closer.
func (b *heldBody) Close() error {
	b.release()
	return nil
}

// errLargeAnswer is that an answer is larger than its limit.
var errLargeAnswer = errors.New("the answer of a server is too large")

// readAll returns all of body. Memory beyond freeAnswer is reserved; a body larger
// than limit is errLargeAnswer.
func (h *bodyHold) readAll(body io.Reader, limit int) ([]byte, error) {
	data := make([]byte, 0, firstPiece)
	for {
		if len(data) == cap(data) {
			size := 2 * cap(data)
			// Both buffers exist while one is copied into the other.
			if size > freeAnswer && h.budget != nil {
				if err := h.reserveUpToShare(cap(data) + size); err != nil {
					return nil, err
				}
			}
			larger := make([]byte, len(data), size)
			copy(larger, data)
			data = larger
			h.shrink(size)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case len(data) > limit:
			return nil, errLargeAnswer
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return nil, err
		}
	}
}
