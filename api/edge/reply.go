package edge

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/valyala/fasthttp"

	"berth/api/edge/limit"
	"berth/compute"
)

// Text is an answer other than JSON.
type Text struct {
	ContentType string
	Body        []byte
	Shared      bool // The node keeps Body anyway: it takes no memory for each client.
}

// NotModified answers a client that already has the newest version.
type NotModified struct{}

// reply sends answer.
func (s *Server) reply(ctx *fasthttp.RequestCtx, r *Request, answer any) {
	s.writeHeaders(ctx, r)
	switch a := answer.(type) {
	case Text:
		if err := s.text(ctx, r, a); err != nil {
			s.fail(ctx, r, err)
			return
		}
	case NotModified:
		ctx.SetStatusCode(fasthttp.StatusNotModified)
	case Events:
		if ctx.IsHead() {
			ctx.SetContentType(EventStream)
			break
		}
		s.stream(ctx, r, a)
	case Download:
		s.download(ctx, a)
	case File:
		if err := s.file(ctx, r, a); err != nil {
			s.fail(ctx, r, err)
			return
		}
	case List:
		s.list(ctx, r, a)
	default:
		body, err := encode(answer)
		if err == nil {
			err = s.send(ctx, r, body)
		}
		if err != nil {
			s.fail(ctx, r, err)
			return
		}
		ctx.SetContentType("application/json")
	}
	s.observe(r, string(ctx.Method()), ctx.Response.StatusCode(), s.took(r))
}

// text sends an answer other than JSON. A stranger gets one large document for each
// connection: otherwise some bytes of pipelined requests would copy gigabytes.
func (s *Server) text(ctx *fasthttp.RequestCtx, r *Request, t Text) error {
	if hold := s.answerHold(r); hold.Budget == s.answers.heldStrangers && len(t.Body) > limit.FreeAnswer {
		ctx.SetConnectionClose()
	}
	if t.Shared {
		ctx.Response.SetBodyRaw(t.Body)
	} else if err := s.send(ctx, r, t.Body); err != nil {
		return err
	}
	ctx.SetContentType(t.ContentType)
	return nil
}

// encode returns v as JSON. HTML in it is not escaped: no browser reads it as
// anything but JSON.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// fail sends err.
func (s *Server) fail(ctx *fasthttp.RequestCtx, r *Request, err error) {
	s.writeHeaders(ctx, r)
	f := failureOf(err)
	if f.status >= fasthttp.StatusInternalServerError {
		s.logFailure(r, f.status, err)
	}
	if f.retryAfter != "" {
		ctx.Response.Header.Set("Retry-After", f.retryAfter)
	}
	if f.status == fasthttp.StatusUnauthorized {
		ctx.Response.Header.Set("WWW-Authenticate", `Bearer realm="berth"`)
	}
	body, encodeErr := encode(f.body)
	if encodeErr != nil {
		f.status, body = fasthttp.StatusInternalServerError, []byte(`{"detail":"Internal error.","code":"internal"}`)
	}
	ctx.SetStatusCode(f.status)
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyRaw(body)
	s.observe(r, string(ctx.Method()), f.status, s.took(r))
}

// logFailure logs the cause, which the answer does not contain.
func (s *Server) logFailure(r *Request, status int, err error) {
	log := r.Log(s.log).Error
	if compute.CodeOf(err) == compute.CodeUnavailable || isDeadline(err) {
		log = r.Log(s.log).Debug
	}
	route := "no route"
	if r.route != nil {
		route = r.route.Method + " " + r.route.Path
	}
	log("request not served", "route", route, "status", status, "code", compute.CodeOf(err), "err", compute.Detailed(err))
}

// writeHeaders sets the headers that every answer has.
func (s *Server) writeHeaders(ctx *fasthttp.RequestCtx, r *Request) {
	now := s.QueryMeta()
	h := &ctx.Response.Header
	h.Set("X-Request-Id", r.id)
	h.Set("X-Berth-Index", strconv.FormatUint(max(now.Index, r.index), 10))
	h.Set("X-Berth-Known-Leader", strconv.FormatBool(now.KnownLeader))
	h.Set("X-Berth-Last-Contact", strconv.FormatInt(now.LastContact, 10))
	s.secure(h)
	s.share(ctx)
	h.Set("Cache-Control", "no-store")
	if r.ETag != "" {
		h.Set("ETag", r.ETag)
	}
	for name, value := range r.extra {
		h.Set(name, value)
	}
}
