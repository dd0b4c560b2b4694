package edge

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"path"
	"strconv"

	"github.com/valyala/fasthttp"

	"berth/api/edge/answer"
	"berth/api/edge/connection"
	"berth/api/edge/limit"
	"berth/compute"
)

// Limits of files that are sent. Each holds a chunk in memory.
const (
	maxFiles   = 32
	filesShare = 4 // The part of them that one organization may have: a quarter.
)

// reply sends what a handler answered.
func (s *Server) reply(ctx *fasthttp.RequestCtx, r *Request, value any) {
	s.writeHeaders(ctx, r)
	switch a := value.(type) {
	case answer.Text:
		if err := s.text(ctx, r, a); err != nil {
			s.fail(ctx, r, err)
			return
		}
	case answer.NotModified:
		ctx.SetStatusCode(fasthttp.StatusNotModified)
	case answer.Events:
		if ctx.IsHead() {
			ctx.SetContentType(answer.EventStream)
			break
		}
		s.stream(ctx, r, a)
	case answer.Download:
		s.download(ctx, r, a)
	case answer.File:
		if err := s.file(ctx, r, a); err != nil {
			s.fail(ctx, r, err)
			return
		}
	case answer.List:
		s.list(ctx, r, a)
	default:
		body, err := answer.Encode(value)
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
func (s *Server) text(ctx *fasthttp.RequestCtx, r *Request, t answer.Text) error {
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

// list sends a list. An error in its first piece is answered as such; a later one
// breaks the connection, because the status is already sent.
func (s *Server) list(ctx *fasthttp.RequestCtx, r *Request, l answer.List) {
	rows := l.Open(r.life.hard, ctx.Conn(), r.Log(s.log))
	err := rows.Fill()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		err = errors.Join(err, rows.Close())
		s.fail(ctx, r, err)
		return
	case err != nil:
		ctx.Response.SetBodyRaw(rows.Whole())
		_ = rows.Close()
	default:
		release, err := s.TakeStream(r, r.Caller.Actor.Org)
		if err != nil {
			_ = rows.Close()
			s.fail(ctx, r, err)
			return
		}
		rows.Release = release
		ctx.SetBodyStream(rows, -1)
	}
	ctx.SetContentType("application/json")
}

// download streams the body that write produces.
func (s *Server) download(ctx *fasthttp.RequestCtx, r *Request, write answer.Download) {
	ctx.SetContentType(answer.OctetStream)
	conn := ctx.Conn()
	ctx.SetBodyStreamWriter(func(w *bufio.Writer) {
		if err := write(connection.PatientWriter{Conn: conn, To: w}); err != nil {
			r.Log(s.log).Warn("download ended early", "err", err)
		}
	})
}

// file sends a file, or the part of it that the client asks for. The length is
// said first, so that a cut answer shows.
func (s *Server) file(ctx *fasthttp.RequestCtx, r *Request, f answer.File) error {
	from, length, part, err := answer.Range(r.byteRange, f.Size)
	if err != nil {
		ctx.Response.Header.Set("Content-Range", "bytes */"+strconv.FormatInt(f.Size, 10))
		return err
	}
	owner := r.Caller.Actor.Org.String()
	if !s.files.Take(owner, 1) {
		return limit.ErrManyAnswers()
	}
	header := &ctx.Response.Header
	header.Set("Accept-Ranges", "bytes")
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(f.Name)}))
	if part {
		ctx.SetStatusCode(fasthttp.StatusPartialContent)
		header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, from+length-1, f.Size))
	}
	ctx.SetContentType(cmp.Or(f.Type, answer.OctetStream))
	if f.Sandbox {
		header.Set("Content-Security-Policy", "sandbox; default-src 'none'")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
	}
	within, cancel := context.WithCancel(r.life.hard)
	ctx.SetBodyStream(f.Open(within, ctx.Conn(), r.Log(s.log), from, length, func() {
		cancel()
		s.files.Give(owner, 1)
	}), int(length))
	return nil
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
	body, encodeErr := answer.Encode(f.body)
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
