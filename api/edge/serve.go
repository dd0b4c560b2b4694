package edge

import (
	"bytes"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"berth/api/wire"
	"berth/compute"
	"berth/fault"
)

// lifetime bounds requests: streams and held answers end with soft, the others
// with hard.
type lifetime struct{ soft, hard context.Context } //nolint:containedctx // Lives for one call of Serve.

// crowd is how many requests at once are several, for Config.Crowded.
const crowd = 4

// handler returns the handler of all requests.
func (s *Server) handler(life lifetime) fasthttp.RequestHandler {
	r := router.New()
	// Its redirects are built from the client's Host header.
	r.RedirectTrailingSlash, r.RedirectFixedPath, r.HandleOPTIONS = false, false, false
	r.NotFound = func(ctx *fasthttp.RequestCtx) { s.refuse(ctx, NotFound()) }
	r.MethodNotAllowed = func(ctx *fasthttp.RequestCtx) {
		s.refuse(ctx, compute.Errorf(compute.CodeMethodNotAllowed, "This path has no such method."))
	}
	r.PanicHandler = func(ctx *fasthttp.RequestCtx, cause any) { s.refuse(ctx, s.panicked(ctx, cause)) }
	for i := range s.routes {
		rt := &s.routes[i]
		serve := func(ctx *fasthttp.RequestCtx) { s.serve(life, ctx, rt) }
		r.Handle(rt.Method, rt.pattern(), serve)
		if rt.Method == fasthttp.MethodGet {
			r.Handle(fasthttp.MethodHead, rt.pattern(), serve) // fasthttp leaves the body out.
		}
	}
	for _, m := range methodsOf(s.routes) {
		r.Handle(fasthttp.MethodOptions, m.pattern, func(ctx *fasthttp.RequestCtx) { s.options(ctx, m.names) })
	}
	return s.front(func(ctx *fasthttp.RequestCtx) {
		if s.underWay.Add(1) >= crowd && s.cfg.Crowded != nil {
			s.cfg.Crowded()
		}
		defer s.underWay.Add(-1)
		switch passerOf(ctx.URI().PathOriginal()) {
		case byServices:
			s.serveServiceSafely(life, ctx, false)
		case byModels:
			s.serveModelsSafely(life, ctx, false)
		case byS3:
			s.serveS3(life, ctx)
		case byNobody:
			trimSlash(ctx)
			r.Handler(ctx)
		}
		if s.draining.Load() {
			ctx.SetConnectionClose()
		}
	})
}

// panicked logs that a handler panicked, and why. It takes back what was
// answered so far.
func (s *Server) panicked(ctx *fasthttp.RequestCtx, cause any) error {
	id := s.requestID(string(ctx.Request.Header.Peek("X-Request-Id")))
	ctx.Request.Header.Set("X-Request-Id", id) // The answer has the same.
	s.log.Error("handler panicked", "request", id, "err", fmt.Sprintf("%v\n%s", cause, debug.Stack()))
	ctx.Response.Reset()
	return compute.Errorf(compute.CodeInternal, "panic: %v", cause)
}

// trimSlash removes a trailing slash from the path. The router could only
// redirect.
func trimSlash(ctx *fasthttp.RequestCtx) {
	path := ctx.URI().PathOriginal()
	if n := len(path); n > 1 && path[n-1] == '/' {
		ctx.URI().SetPathBytes(bytes.Clone(path[:n-1]))
	}
}

// refuse answers a request of no route.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, err error) {
	r, bad := s.newRequest(ctx, nil)
	if bad != nil {
		ctx.SetConnectionClose()
		err = bad
	}
	s.fail(ctx, r, err)
}

// serve answers one request.
func (s *Server) serve(life lifetime, ctx *fasthttp.RequestCtx, rt *Route) {
	r, err := s.newRequest(ctx, rt)
	if err != nil {
		ctx.SetConnectionClose()
		s.fail(ctx, r, err)
		return
	}
	if rt.Streamed {
		s.serveIncoming(life, ctx, r)
		return
	}
	r.life = life
	defer r.hold.Shrink(0)
	if err := s.receive(ctx, r); err != nil {
		s.failBody(ctx, r, err)
		s.dropBody(r)
		return
	}
	if s.cfg.Relay != nil && !rt.Local {
		s.relay(ctx, r)
		s.leave(r)
		return
	}
	s.respond(life, ctx, r)
}

// respond answers a request that is whole.
func (s *Server) respond(life lifetime, ctx *fasthttp.RequestCtx, r *Request) {
	r.life = life
	r.conn = ctx.Conn()
	r.Renew()
	defer r.release()
	defer s.endTurn(r)
	answer, err := s.answer(r)
	if r.sent {
		ctx.SetConnectionClose()
	}
	if err != nil {
		s.fail(ctx, r, err)
		return
	}
	fault.Point("api.reply.before")
	s.reply(ctx, r, answer)
}

// answer authenticates the caller, decodes the request and calls the route's
// handler.
func (s *Server) answer(r *Request) (any, error) {
	fault.Point("api.admit.before")
	if err := s.access.admit(r); err != nil {
		return nil, err
	}
	if err := s.holdRelayed(r); err != nil {
		return nil, err
	}
	if err := s.awaitDecode(r); err != nil {
		return nil, err
	}
	reused := s.recall(r)
	if err := r.decode(); err != nil {
		return nil, err
	}
	if reused != nil {
		return nil, reused
	}
	fault.Point("api.handle.before")
	return r.route.Handle(r)
}

// decode reads the query and the body.
func (r *Request) decode() error {
	faults := new(wire.Faults)
	if r.route.Query != nil {
		r.Query = r.route.Query()
		wire.DecodeQuery(r.args, r.Query, faults)
	}
	if r.route.Body != nil && !r.route.Raw {
		r.Body = r.route.Body()
		raw := r.raw
		if len(raw) == 0 && r.route.Bare {
			raw = []byte("{}")
		} else if err := r.checkMedia(); err != nil {
			return err
		}
		wire.Decode(raw, r.Body, faults)
	}
	if b, ok := r.Body.(interface {
		CheckTimeout(standard, limit time.Duration, f *wire.Faults)
	}); ok && r.View != nil && !r.Repeat {
		settings := r.View.Settings()
		b.CheckTimeout(settings.TimeoutDefault, settings.TimeoutMax, faults)
	}
	return faults.Err()
}

// checkMedia refuses bodies that are not declared as plain JSON.
func (r *Request) checkMedia() error {
	kind, _, _ := strings.Cut(r.mediaType, ";")
	if kind = strings.TrimSpace(kind); kind != "" && !strings.EqualFold(kind, "application/json") {
		return compute.Errorf(compute.CodeUnsupportedMedia, "The body must be application/json.")
	}
	if r.encoding != "" && !strings.EqualFold(r.encoding, "identity") {
		return compute.Errorf(compute.CodeUnsupportedMedia, "The body must not be compressed.")
	}
	return nil
}
