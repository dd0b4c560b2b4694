package edge

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/api/edge/limit"
	"berth/api/edge/openai"
	"berth/compute"
	"berth/fsm"
)

// ModelRoot is the path of the OpenAI-compatible API. The same is served below
// serverlessRoot.
const (
	ModelRoot      = "/openai/v1"
	serverlessRoot = Root + "/serverless"
)

// Limits of requests to models.
const (
	maxPrompt    = 16 << 20  // Bytes of a body,
	slowestBody  = 256 << 10 // of which so many come in a minute at least.
	modelsListed = 1000      // In a list, or in the error for an unknown one.
	statedModels = 20
	publishedBy  = "berth" // Owns published models, as clients see it: not whose the deployment is.
)

// Models has replicas of deployments answer.
type Models interface {
	// Ready reports whether a replica of a deployment answers requests.
	Ready(view *fsm.View, deployment *compute.Execution) bool
	// Count counts a request to a deployment. The caller calls answered with the first
	// byte of the answer, and done at its end.
	Count(deployment compute.ExecutionID, now func() time.Time) (answered, done func())
	// Admit waits until a request to a deployment may be sent to a replica. Organizations
	// share the places of its replicas by tokens. The caller calls leave with the tokens
	// that the request used, 0 if they are not known.
	Admit(
		ctx context.Context, view *fsm.View, deployment *compute.Execution, org compute.OrgID, tokens int64,
	) (leave func(tokens int64), err error)
	// Infer has a replica answer a request with a body. Requests with the same prefix
	// prefer the same replica. It adds to failed the replicas that failed with the request,
	// and asks no other after compute.MaxReplicaFailures of them.
	Infer(
		view *fsm.View, deployment *compute.Execution, req *http.Request, body []byte, prefix uint64, failed *int,
	) (*http.Response, error)
}

// ModelLimits bounds requests to models on a node.
type ModelLimits struct {
	PerMinute  int           // Requests of one key or user; 0 for no limit.
	InFlight   int64         // Requests of one organization at once.
	ResumeWait time.Duration // For a deployment to become ready.
	AnswerWait time.Duration // For the next byte of an engine; 0 for no limit.
}

// Tokens sets credits aside for requests to published models, and charges for what the
// engines say was used.
type Tokens interface {
	// Reserve waits until what a request may cost is set aside. It refuses who cannot
	// pay, with insufficient_quota.
	Reserve(
		ctx context.Context, payer compute.Payer, m *compute.Model, prompt, completion int64,
	) (openai.Reservation, error)
}

// modelCall is one request to a model.
type modelCall struct {
	serviceCall

	body  []byte
	asked openai.Body
	model *compute.Execution

	published *compute.Model     // By whose id the model was named; nil for a deployment of the caller.
	reserved  openai.Reservation // For a published one.
	held      limit.Hold         // For the body.

	answered, done func() // From Models.Count; nil before the request is counted.

	failed   int       // Replicas that failed with the request,
	failedAt time.Time // the first of them at this time.

	size      int // Bytes of the body.
	estimated openai.Usage
	most      openai.Usage // The tokens that are set aside, for a published model.

	left  bool               // The client has left before the answer.
	leave func(tokens int64) // Frees the place at the replicas; nil before the request has one.
	used  int64              // Tokens, as far as the engine says.

	streamed time.Duration // When the first event of a stream came, since the request.
}

// serveModels answers a request to the OpenAI-compatible API. A worker may have handed
// it on.
func (s *Server) serveModels(life lifetime, ctx *fasthttp.RequestCtx, byWorker bool) {
	r, err := s.newRequest(ctx, nil)
	r.life = life
	if byWorker {
		s.believe(ctx, r)
	}
	path := string(ctx.URI().PathOriginal())
	below := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(path, ModelRoot), serverlessRoot), "/")
	r.route = &Route{Method: string(ctx.Method()), Path: ModelRoot + "/{operation}"}
	c := &modelCall{serviceCall: serviceCall{Server: s, ctx: ctx, r: r, path: below, bare: true}}
	defer func() {
		c.held.Shrink(0)
		if cause := recover(); cause != nil {
			c.failModel(s.panicked(ctx, cause))
			ctx.SetConnectionClose()
		}
	}()
	switch {
	case err != nil:
		ctx.SetConnectionClose()
	case ctx.IsOptions() && modelMethods(below) != nil:
		s.options(ctx, modelMethods(below))
	case s.cfg.ServiceRelay != nil:
		c.path = path
		err = c.relayService()
	case s.cfg.Models == nil:
		err = NotFound()
	default:
		err = c.answer(below)
	}
	if err != nil {
		c.failModel(err)
	}
}

// answer routes the request.
func (c *modelCall) answer(below string) error {
	if err := c.identify(); err != nil {
		return err
	}
	if err := c.limit(); err != nil {
		return err
	}
	switch methods := modelMethods(below); {
	case methods == nil:
		return compute.Errorf(compute.CodeNotFound, "Unknown request URL.").Named("unknown_url")
	case !slices.Contains(methods, string(c.ctx.Method())):
		return compute.Errorf(compute.CodeMethodNotAllowed, "This path has no such method.")
	case below == "/models":
		return c.listModels("")
	case strings.HasPrefix(below, "/models/"):
		one := strings.TrimPrefix(below, "/models/")
		if text, err := url.PathUnescape(one); err == nil {
			one = text
		}
		return c.listModels(one)
	}
	if err := c.read(); err != nil {
		return err
	}
	return c.infer(below)
}

// identify checks the bearer, and counts the request of its caller.
func (c *modelCall) identify() error {
	if len(c.r.bearer) < minCredential {
		return c.access.stranger(c.r)
	}
	if err := c.freshen(); err != nil {
		return err
	}
	who, ok := c.bearer(c.r.bearer)
	if !ok && c.r.stale { // The credential may be newer.
		if err := c.renew(); err != nil {
			return err
		}
		who, ok = c.bearer(c.r.bearer)
	}
	if !ok {
		return c.access.stranger(c.r)
	}
	c.r.Caller = who
	noOrg := c.r.enterDefaultOrg()
	if err := c.access.rates.caller(c.r); err != nil { // First: what is refused counts too.
		return err
	}
	if err := who.checkScope(scopeOf(byModels)); err != nil {
		return err
	}
	return noOrg
}

// renew replaces a view that may be behind by one that includes everything acknowledged.
func (c *modelCall) renew() error {
	if !c.r.stale {
		return nil
	}
	return c.readNow()
}

// limit counts the request against the limit of its key or user, and sets the
// headers about the rest.
func (c *modelCall) limit() error {
	limit := c.cfg.ModelLimits.PerMinute
	if limit <= 0 {
		return nil
	}
	owner := c.r.Caller.Actor.Key.UUID
	if c.r.Caller.Actor.Key.IsZero() {
		owner = c.r.Caller.Actor.User.UUID
	}
	left, wait := c.modelRates.Take(owner, limit, c.Now())
	h := &c.ctx.Response.Header
	h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(limit))
	h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(left))
	h.Set("X-Ratelimit-Reset-Requests", wait.Round(time.Millisecond).String())
	if left < 0 {
		h.Set("X-Ratelimit-Remaining-Requests", "0")
		return compute.Errorf(compute.CodeRateLimited, "Rate limit reached: %d requests a minute on each node.", limit).
			Named("rate_limit_exceeded").Retry(wait)
	}
	return nil
}

// read reads the whole body: another replica may have to get it.
func (c *modelCall) read() error {
	length := c.ctx.Request.Header.ContentLength()
	if length > maxPrompt {
		c.ctx.SetConnectionClose()
		return tooLong()
	}
	c.held = limit.Hold{Budget: c.bodies, Owner: c.r.Caller.Actor.Org.String()}
	if length > InlineBody {
		if err := c.held.Reserve(length); err != nil {
			c.ctx.SetConnectionClose()
			return err
		}
	}
	from := c.ctx.RequestBodyStream()
	if from == nil {
		c.body = append([]byte(nil), c.ctx.Request.Body()...)
		return c.asked.Parse(&c.body)
	}
	body := &connection.RequestBody{
		From: from, Conn: c.ctx.Conn(), Pause: c.cfg.Limits.ReadTimeout, Piece: slowestBody,
		Within: readFactorStart * c.cfg.Limits.ReadTimeout,
	}
	var err error
	if length >= 0 {
		c.body = make([]byte, length)
		_, err = io.ReadFull(body, c.body)
	} else {
		c.body, err = c.held.ReadAll(body, maxPrompt)
	}
	switch {
	case errors.Is(err, limit.ErrTooLarge):
		c.ctx.SetConnectionClose()
		return tooLong()
	case err != nil:
		c.ctx.SetConnectionClose()
		if refusal, is := errors.AsType[*compute.Error](err); is {
			return refusal
		}
		return compute.Errorf(compute.CodeTimeout, "The body did not arrive: %w", err)
	}
	_ = c.ctx.Conn().SetReadDeadline(time.Time{})
	return c.asked.Parse(&c.body)
}

func tooLong() error {
	return compute.Errorf(compute.CodeTooLarge, "The body has more than %d bytes.", maxPrompt).
		Named("context_length_exceeded")
}

// infer has a replica of the model answer.
func (c *modelCall) infer(below string) error {
	owner := c.r.Caller.Actor.Org.String()
	entered := c.modelsServed.Take(owner, 1)
	h := &c.ctx.Response.Header
	h.Set("X-Ratelimit-Limit-In-Flight", strconv.Itoa(c.modelsServed.Share()))
	h.Set("X-Ratelimit-Remaining-In-Flight", strconv.Itoa(c.modelsServed.Left(owner)))
	if !entered {
		return c.crowded(owner)
	}
	ctx, cancel := context.WithCancel(c.r.life.hard)
	c.r.conn = c.ctx.Conn()
	unwatch := sync.OnceFunc(c.r.Watch(cancel))
	c.find(c.asked.Model)
	over := c.begin()
	end := sync.OnceFunc(func() {
		if c.reserved != nil {
			c.reserved.Cancel()
		}
		if c.leave != nil {
			c.leave(c.used)
		}
		unwatch()
		cancel()
		c.modelsServed.Give(owner, 1)
		if c.done != nil {
			c.done()
		}
		over()
	})
	taken := false
	defer func() {
		if !taken { // It failed, or a panic passes.
			end()
		}
	}()
	err := c.askAndWrite(ctx, below, unwatch, end)
	taken = err == nil
	return err
}

// crowded is the error of a request for which the node has no place: the organization has its
// share, or all organizations together have all places.
func (c *modelCall) crowded(owner string) error {
	if c.modelsServed.Exhausted(owner) {
		return compute.Errorf(compute.CodeRateLimited, "The organization has too many requests under way on this node.").
			Named("rate_limit_exceeded").Retry(time.Second)
	}
	return compute.Errorf(compute.CodeUnavailable, "This node has too many requests to models under way.").
		Named("overloaded").Retry(time.Second)
}

// askAndWrite has a replica answer, and passes the answer on: it then calls end once that was
// sent. The caller calls end after an error.
func (c *modelCall) askAndWrite(ctx context.Context, below string, unwatch, end func()) error {
	answer, err := c.ask(ctx, below)
	if err != nil {
		c.left = c.hungUp(ctx, err)
		if ctx.Err() != nil || c.r.sent {
			c.ctx.SetConnectionClose()
		}
		return err
	}
	passed := false
	defer func() {
		if !passed {
			answer.Body.Close()
		}
	}()
	c.answered()
	kept := true
	if answer.ContentLength >= 0 {
		unwatch()
	} else { // A client that hangs up ends the stream.
		end, kept = c.keeps(unwatch, end)
	}
	if c.r.sent || !kept {
		c.ctx.SetConnectionClose()
	}
	if c.published != nil {
		err := c.writePublished(ctx, answer, end)
		passed = err == nil
		return err
	}
	if c.asked.Stream {
		answer.Body = openai.NewCountedEvents(answer.Body, c.observeEvents)
	}
	c.writeModelAnswer(answer, end)
	passed = true
	return nil
}

// hungUp reports whether the client has left before a request failed whose context has
// not ended for another reason.
func (c *modelCall) hungUp(ctx context.Context, err error) bool {
	return ctx.Err() != nil && c.r.life.hard.Err() == nil && !openai.IsTimeout(err)
}

// ask waits for a ready replica and asks it.
func (c *modelCall) ask(ctx context.Context, below string) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {c.r.id}, "User-Agent": {""}}
	if accept := c.ctx.Request.Header.Peek("Accept"); len(accept) > 0 {
		header.Set("Accept", string(accept))
	}
	req := (&http.Request{
		Method: http.MethodPost, Host: "engine", Header: header, URL: &url.URL{Scheme: "http", Opaque: "/v1" + below},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	for tries := 0; ; {
		if err := c.await(ctx, below); err != nil {
			stopped := compute.CodeOf(err) == compute.CodeConflict // It may have been started through another node.
			if stopped && tries == 0 && c.renew() == nil {         //nolint:contextcheck // It lives as the server does.
				tries++
				continue
			}
			return nil, c.lostOr(err)
		}
		if err := c.enter(ctx, below); err != nil {
			return nil, err
		}
		body := c.body
		if c.published != nil {
			body = c.asked.Addressed(body, c.model.ID)
		}
		answer, err := c.inferInTime(req, body)
		if err == nil && answer.StatusCode == http.StatusBadRequest && c.asked.Shorten() {
			answer.Body.Close()
			continue
		}
		if err == nil || !c.retries(ctx, err, &tries) {
			c.body = nil // A stream may last for long.
			return answer, c.lostOr(err)
		}
	}
}

// serveModelsSafely is serveModels that answers after a panic outside of the call.
func (s *Server) serveModelsSafely(life lifetime, ctx *fasthttp.RequestCtx, byWorker bool) {
	defer func() {
		if cause := recover(); cause != nil {
			s.refuse(ctx, s.panicked(ctx, cause))
		}
	}()
	s.serveModels(life, ctx, byWorker)
}
