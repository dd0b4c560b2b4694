package edge

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/auth"
	"berth/api/edge/connection"
	"berth/compute"
	"berth/fsm"
)

// ServiceRoot is the path below which services are reached.
const ServiceRoot = "/services/"

// Limits of requests to services.
const (
	maxServed   = 4096 // Requests and upgraded connections at once,
	servedShare = 2    // and the part of them of one organization: a half.
	// leaderlessMax is how long after the last contact with a leader callers of services and models are checked
	// in the local view.
	leaderlessMax = 5 * time.Second
	cookieTTL     = 12 * time.Hour // Lifetime of the cookie that a token is exchanged for.
	cookieName    = "berth_service"
	cookieBytes   = 64
	boundBytes    = 80                  // With a digest of the key's value.
	cookieDomain  = "service cookie v1" // Separates its signature from those of streams.
)

// Services finds the way to services.
type Services interface {
	// RoundTrip has a ready replica of a service answer a request, whose URL has no
	// host. An error is unavailable while no replica can.
	RoundTrip(view *fsm.View, service *compute.Execution, req *http.Request) (*http.Response, error)
}

// serviceCall is one request to a service.
type serviceCall struct {
	*Server
	ctx   *fasthttp.RequestCtx
	r     *Request
	id    compute.ExecutionID
	path  string // Behind the prefix, as the client sent it: "" or from a slash.
	query string // As the client sent it, without a token of ours.

	service *compute.Execution
	cookie  string // To be set; "" for none.
	moved   bool   // The token was in the URL.
	bare    bool   // This node only hands on what a server answers, as it is.
}

// serveService has a service answer a request. A worker may have handed it on.
func (s *Server) serveService(life lifetime, ctx *fasthttp.RequestCtx, byWorker bool) {
	r, err := s.newRequest(ctx, nil)
	r.life = life
	if byWorker {
		s.believe(ctx, r)
	}
	r.route = &Route{Method: string(ctx.Method()), Path: ServiceRoot + "{id}/"}
	if err != nil {
		ctx.SetConnectionClose()
		s.fail(ctx, r, err)
		return
	}
	c := &serviceCall{Server: s, ctx: ctx, r: r, query: string(ctx.URI().QueryString())}
	path := strings.TrimPrefix(string(ctx.URI().PathOriginal()), ServiceRoot)
	name, rest, below := strings.Cut(path, "/")
	if below {
		c.path = "/" + rest
	}
	c.id, err = compute.ParseExecutionID(name)
	switch {
	case err != nil:
		err = NotFound()
	case s.cfg.ServiceRelay != nil:
		c.bare = true
		err = c.relayService()
	case s.cfg.Services == nil:
		err = NotFound()
	default:
		if err = c.admit(); err == nil {
			err = c.serve()
		}
	}
	if err != nil {
		ctx.Response.Reset()
		s.fail(ctx, r, err)
		c.protect()
		if !ctx.IsGet() && !ctx.IsHead() {
			ctx.SetConnectionClose() // Nothing is read of a body that nobody wants.
		}
	}
}

// freshen sets the view in which the caller is checked: as on other routes it includes
// everything acknowledged before the request. While no leader is known the local view decides,
// for leaderlessMax: a request needs no leader, and an election is over sooner.
func (c *serviceCall) freshen() error {
	view, contact, known := c.cfg.Reader.Stale()
	if known || contact > min(leaderlessMax, c.cfg.Limits.StaleAuthMax) {
		return c.readNow()
	}
	c.r.stale = true
	return c.r.see(view)
}

// readNow sets the view to one that includes everything acknowledged before. Requests that
// arrive together share a question to the leader.
func (c *serviceCall) readNow() error {
	ctx, cancel := context.WithTimeout(c.r.life.hard, c.cfg.Limits.ReadTimeout)
	defer cancel()
	view, err := c.cfg.Reader.Read(ctx)
	if err != nil {
		return err
	}
	c.r.stale = false
	return c.r.see(view)
}

// admit checks the credential: the cookie, the token in the URL or the bearer.
func (c *serviceCall) admit() error {
	cookie := string(c.ctx.Request.Header.Cookie(cookieName))
	if c.r.bearer == "" && cookie == "" && !strings.Contains(c.query, "token=") {
		return c.access.stranger(c.r)
	}
	if err := c.freshen(); err != nil {
		return err
	}
	given := c.tokenInQuery()
	for _, try := range []struct {
		text string
		ok   func(string) (Caller, bool)
		then func()
	}{
		{given, c.bearer, func() { c.moved = true }},
		{cookie, c.openCookie, func() {}},
		{c.r.bearer, c.bearer, func() {}},
	} {
		if try.text == "" {
			continue
		}
		who, ok := try.ok(try.text)
		if !ok {
			continue
		}
		try.then()
		return c.enter(who)
	}
	return c.access.stranger(c.r)
}

// bearer returns the caller of an API key or an access token.
func (c *serviceCall) bearer(text string) (Caller, bool) {
	if len(text) < minCredential {
		return Caller{}, false
	}
	asked := *c.r
	asked.bearer = text
	return c.access.identify(&asked)
}

// enter admits a caller who is a member of the service's organization. Others learn
// nothing. Their requests count all the same.
func (c *serviceCall) enter(who Caller) error {
	e, ok := c.r.View.AnyExecution(c.id)
	keyed := !who.Actor.Key.IsZero()
	ok = ok && e.Kind == compute.KindService && (!keyed || who.Actor.Org == e.Org) && who.join(c.r.View, e.Org)
	c.r.Caller = who
	if err := c.access.rates.caller(c.r); err != nil {
		return err
	}
	if err := who.checkScope(scopeOf(byServices)); err != nil {
		return err
	}
	if !ok {
		return NotFound()
	}
	if e.Status.Terminal() {
		return compute.Errorf(compute.CodeNotFound, "The service has ended.").Named("service_ended")
	}
	c.service = e
	if c.moved {
		c.cookie = c.newCookie(&who)
	}
	return nil
}

// tokenInQuery returns the credential in the query, and takes it out of what is
// passed on. A parameter of that name that is none of ours is the program's.
func (c *serviceCall) tokenInQuery() string {
	var token string
	kept := make([]string, 0, 4)
	for part := range strings.SplitSeq(c.query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if plain, err := url.QueryUnescape(value); name == "token" && token == "" && err == nil {
			if _, ok := c.bearer(plain); ok {
				token = plain
				continue
			}
		}
		kept = append(kept, part)
	}
	c.query = strings.Join(kept, "&")
	return token
}

// newCookie returns the capability to reach the service as the caller, until it
// expires or the caller's rights end.
func (c *serviceCall) newCookie(who *Caller) string {
	data := make([]byte, 0, boundBytes)
	data = append(data, who.Actor.User.UUID[:]...)
	data = append(data, who.Actor.Key.UUID[:]...)
	data = append(data, who.Session[:]...)
	data = binary.BigEndian.AppendUint64(data, who.Actor.TokenVersion)
	data = binary.BigEndian.AppendUint64(data, uint64(c.Now().Add(cookieTTL).Unix()))
	if key, ok := c.r.View.Key(who.Actor.Org, who.Actor.Key); ok && c.r.View.AllowsBoundCredentials() == nil {
		value := auth.KeyDigest(key.Hash)
		data = append(data, value[:]...)
	}
	return auth.Sealed(c.cfg.StreamKey, cookieDomain+c.id.String(), data)
}

// openCookie returns the caller of a cookie, as far as the caller still has the
// rights of then.
func (c *serviceCall) openCookie(text string) (Caller, bool) {
	data, ok := auth.Unsealed(c.cfg.StreamKey, cookieDomain+c.id.String(), text)
	if !ok || len(data) != cookieBytes && len(data) != boundBytes {
		return Caller{}, false
	}
	if int64(binary.BigEndian.Uint64(data[56:64])) < c.Now().Unix() {
		return Caller{}, false
	}
	who := Caller{Session: compute.UUID(data[32:48])}
	who.Actor.User.UUID, who.Actor.Key.UUID = compute.UUID(data[:16]), compute.UUID(data[16:32])
	who.Actor.TokenVersion = binary.BigEndian.Uint64(data[48:])
	user, ok := c.r.View.User(who.Actor.User)
	if !ok || !user.Active {
		return Caller{}, false
	}
	who.User = user
	if !who.Actor.Key.IsZero() {
		e, known := c.r.View.AnyExecution(c.id)
		if !known {
			return Caller{}, false
		}
		key, ok := c.r.View.Key(e.Org, who.Actor.Key)
		expired := ok && !key.ExpiresAt.IsZero() && key.ExpiresAt <= compute.InstantOf(c.Now())
		bound := len(data) == boundBytes // Those made at an older format are not.
		if !ok || !key.Active || expired || bound && compute.UUID(data[cookieBytes:]) != auth.KeyDigest(key.Hash) {
			return Caller{}, false
		}
		who.Actor.Org = key.Org
		return who, true
	}
	live, known := c.r.View.Session(who.Session)
	return who, user.TokenVersion == who.Actor.TokenVersion && (live || !known && c.r.stale)
}

// serve passes the request on, or sends a browser to the address without the token.
func (c *serviceCall) serve() error {
	upgrade := c.upgrade()
	if get := c.ctx.IsGet() || c.ctx.IsHead(); get && upgrade == "" && (c.moved || c.path == "") {
		to := ServiceRoot + c.id.String() + c.path
		if c.path == "" {
			to += "/"
		}
		if c.query != "" {
			to += "?" + c.query
		}
		c.writeHeaders(c.ctx, c.r)
		c.protect()
		c.setCookie()
		c.ctx.Response.Header.Set("Location", to)
		c.ctx.SetStatusCode(fasthttp.StatusSeeOther)
		return nil
	}
	owner := c.service.Org.String()
	if !c.served.Take(owner, 1) {
		return compute.Errorf(compute.CodeUnavailable, "This node passes on too many requests.").
			Named("too_many_requests").Retry(time.Second)
	}
	ask := func(ctx context.Context, body *connection.RequestBody) (*http.Response, error) {
		return c.cfg.Services.RoundTrip(c.r.View, c.service, c.request(ctx, body, c.requestHeader(upgrade)))
	}
	return c.pass(upgrade, func() { c.served.Give(owner, 1) }, ask)
}

// pass has a replica answer by ask. It calls release when the answer, or the upgraded
// connection, has ended.
func (c *serviceCall) pass(
	upgrade string, release func(), ask func(context.Context, *connection.RequestBody) (*http.Response, error),
) error {
	ctx, cancel := context.WithCancel(c.r.life.hard)
	watch := &connection.ClientWatch{Watch: c.r.Watch, Gone: cancel}
	body := &connection.RequestBody{From: c.ctx.RequestBodyStream(), Conn: c.ctx.Conn(), Pause: c.cfg.Limits.ReadTimeout}
	end := sync.OnceFunc(func() {
		cancel()
		body.Close()
		release()
	})
	if c.r.conn = c.ctx.Conn(); upgrade != "" {
		watch.Stop() // The client speaks the other protocol.
	} else if body.Whole = watch.Begin; body.None() {
		watch.Begin()
	}
	answer, err := ask(ctx, body)
	if err != nil {
		watch.Stop()
		end()
		if c.r.sent {
			c.ctx.SetConnectionClose()
		}
		return err
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		watch.Stop()
		if upgrade == "" {
			answer.Body.Close()
			end()
			c.ctx.SetConnectionClose() // The watch may have read of the next request.
			return errUnaskedSwitch()
		}
		return c.switched(answer, end)
	}
	kept := true
	if answer.ContentLength >= 0 {
		watch.Stop()
	} else { // A client that hangs up ends the stream.
		end, kept = c.keeps(watch.Stop, end)
	}
	if c.r.sent || !kept {
		c.ctx.SetConnectionClose()
	}
	c.writeAnswer(answer)
	h := &c.ctx.Response
	h.ImmediateHeaderFlush = answer.ContentLength < 0
	h.SetBodyStream(&connection.AnswerBody{From: answer.Body, Conn: c.ctx.Conn(), End: end}, int(answer.ContentLength))
	c.observe(c.r, c.r.route.Method, answer.StatusCode, c.took(c.r))
	return nil
}

// unaskedSwitch is the code of an answer that changes a protocol which the client did not ask
// to change: its status is 502.
const unaskedSwitch = "unasked_upgrade"

func errUnaskedSwitch() error {
	return compute.Errorf(compute.CodeUnavailable, "The program switched protocols, which the request did not ask for.").
		Named(unaskedSwitch)
}

// keeps reports whether the connection of an answer of unknown length serves more
// requests, and makes end watch the client until the answer has ended. If the client
// sends more before that, the bytes are lost and its connection ends.
func (c *serviceCall) keeps(unwatch, end func()) (func(), bool) {
	if c.r.sent || !c.ctx.Request.Header.IsHTTP11() {
		return end, false
	}
	conn := c.ctx.Conn()
	return func() {
		unwatch()
		if c.r.sent {
			_ = conn.SetReadDeadline(connection.LastRequest())
		}
		end()
	}, true
}

// switched pipes both directions of a connection whose protocol has changed.
func (c *serviceCall) switched(answer *http.Response, end func()) error {
	to, ok := answer.Body.(io.ReadWriteCloser)
	if !ok {
		answer.Body.Close()
		end()
		return compute.Errorf(compute.CodeUnavailable, "The replica's connection cannot change its protocol.").
			Named("replica_failed")
	}
	c.writeAnswer(answer)
	h := &c.ctx.Response.Header
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", answer.Header.Get("Upgrade"))
	soft := c.r.life.soft
	c.ctx.Hijack(func(conn net.Conn) {
		defer end()
		defer conn.Close()
		connection.Pipe(soft, conn, to)
	})
	c.observe(c.r, c.r.route.Method, answer.StatusCode, c.took(c.r))
	return nil
}

// serveServiceSafely is serveService that answers after a panic.
func (s *Server) serveServiceSafely(life lifetime, ctx *fasthttp.RequestCtx, byWorker bool) {
	defer func() {
		if cause := recover(); cause != nil {
			s.refuse(ctx, s.panicked(ctx, cause))
		}
	}()
	s.serveService(life, ctx, byWorker)
}
