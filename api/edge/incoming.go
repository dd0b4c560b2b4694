package edge

import (
	"bufio"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"github.com/fasthttp/router"
	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/compute"
)

// Limits of bodies that handlers read as they come.
const (
	// slowBytes is the least that has to come in slowTime: an upload holds memory.
	slowBytes = 256 << 10
	slowTime  = time.Minute
	// formBuffer is how many bytes of a form are read at a time.
	formBuffer = 256 << 10
)

// incoming is the body of a request whose route is Streamed, on its way to the handler.
// Bytes that are not read yet stay with the client.
type incoming struct {
	from  *connection.RequestBody
	now   func() time.Time
	left  int64 // Bytes that have to come; negative if nobody knows.
	since time.Time
	bytes int // Since then.
	ended bool
	err   error // Why no more can be read.
}

// Read implements io.Reader. Its errors are those of clients.
func (b *incoming) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if b.from.None() {
		b.ended, b.err = true, io.EOF
		return 0, b.err
	}
	n, err := b.from.Read(p)
	b.bytes += n
	known := b.left >= 0
	if known {
		b.left -= int64(n)
	}
	switch {
	case errors.Is(err, io.EOF) && known && b.left > 0:
		b.err = parserErrorOf(io.ErrUnexpectedEOF)
	case errors.Is(err, io.EOF):
		b.ended, b.err = true, io.EOF
	case err != nil:
		b.err = parserErrorOf(err)
	default:
		b.err = b.checkSpeed()
	}
	return n, b.err
}

// checkSpeed refuses a client that sends so slowly that it may never end.
func (b *incoming) checkSpeed() error {
	now := b.now()
	if now.Sub(b.since) < slowTime {
		return nil
	}
	if b.bytes < slowBytes {
		return compute.Errorf(compute.CodeTimeout, "The body comes too slowly: %d bytes in the last minute.", b.bytes)
	}
	b.since, b.bytes = now, 0
	return nil
}

// Incoming returns the body of a request whose route is Streamed. Its errors are those
// that the client gets.
func (r *Request) Incoming() io.Reader { return r.incoming }

// Cut returns why no more of the body can be read, nil while it can or at its end.
func (r *Request) Cut() error {
	if r.incoming == nil || errors.Is(r.incoming.err, io.EOF) {
		return nil
	}
	return r.incoming.err
}

// Form returns the reader of a multipart body, whose parts come one after the other.
func (r *Request) Form() (*multipart.Reader, error) {
	kind, params, err := mime.ParseMediaType(r.mediaType)
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return nil, compute.Errorf(compute.CodeUnsupportedMedia, "The body must be multipart/form-data, with its boundary.")
	}
	// The parser reads 4 KiB at a time, each a system call without this buffer.
	size := int64(formBuffer)
	if r.incoming.left >= 0 {
		size = min(size, r.incoming.left+1)
	}
	return multipart.NewReader(bufio.NewReaderSize(r.incoming, int(size)), params["boundary"]), nil
}

// Length returns the bytes that the body is said to have, negative if nobody knows.
func (r *Request) Length() int64 {
	if r.incoming == nil {
		return 0
	}
	return r.incoming.left
}

// Endure lifts the request's deadline while the body comes. The handler calls Renew
// when it has come.
func (r *Request) Endure() {
	r.release()
	r.Ctx, r.cancel = context.WithCancel(r.life.hard)
}

// Sum sets what a request with a streamed body is recognised by: another one with the
// same Idempotency-Key differs in it.
func (r *Request) Sum(sum []byte) { r.raw = sum }

// serveIncoming answers a request whose handler reads the body as it comes.
func (s *Server) serveIncoming(life lifetime, ctx *fasthttp.RequestCtx, r *Request) {
	if s.cfg.Relay != nil {
		s.relayIncoming(life, ctx, r)
		return
	}
	length := int64(ctx.Request.Header.ContentLength())
	body := &incoming{
		from: &connection.RequestBody{From: ctx.RequestBodyStream(), Conn: ctx.Conn(), Pause: s.cfg.Limits.ReadTimeout},
		now:  s.cfg.Stopwatch, left: length, since: s.cfg.Stopwatch(),
	}
	r.incoming = body
	s.respond(life, ctx, r)
	if !body.ended && !body.from.None() {
		ctx.SetConnectionClose()
	}
	body.from.Close()
}

// relayIncoming has a server answer: this node holds no replica, and the body is not
// held anywhere.
func (s *Server) relayIncoming(life lifetime, ctx *fasthttp.RequestCtx, r *Request) {
	r.life = life
	if s.cfg.ServiceRelay == nil {
		s.fail(ctx, r, compute.Errorf(compute.CodeUnavailable, "This node cannot hand on bodies."))
		return
	}
	in := &Relayed{IP: r.IP, Bearer: r.bearer, Path: StreamRoot + "/stream/"} // Counted as a stream.
	release, err := s.takeRelay(in)
	if err != nil {
		ctx.SetConnectionClose()
		s.fail(ctx, r, err)
		return
	}
	c := &serviceCall{Server: s, ctx: ctx, r: r, query: string(ctx.URI().QueryString()), bare: true}
	err = c.pass("", release, func(within context.Context, body *connection.RequestBody) (*http.Response, error) {
		body.Whole = nil // The server stores an upload for a client that has left too.
		req := c.request(within, body, withUpgrade(passedOn(&ctx.Request.Header), ""))
		req.URL = &url.URL{Scheme: "http", Host: "server", Opaque: string(ctx.URI().PathOriginal()), RawQuery: c.query}
		answer, err := s.cfg.ServiceRelay.RoundTrip(req)
		if err != nil {
			return nil, compute.Errorf(compute.CodeUnavailable, "No server of the cluster answered.").
				Named("no_server").Retry(time.Second).Because(err)
		}
		return answer, nil
	})
	if err != nil {
		ctx.SetConnectionClose()
		s.fail(ctx, r, err)
	}
}

// passedOn returns the headers of a request that a server has to read.
func passedOn(from *fasthttp.RequestHeader) http.Header {
	drop := slices.DeleteFunc(append(hopByHop(), ours()...), func(name string) bool { return name == "X-Org-Slug" })
	header := http.Header{}
	for name, value := range from.All() {
		if key := textproto.CanonicalMIMEHeaderKey(string(name)); !slices.Contains(drop, key) {
			header.Add(key, string(value))
		}
	}
	return header
}

// incomingHandler answers requests with streamed bodies that a worker hands on.
func (s *Server) incomingHandler(life lifetime) fasthttp.RequestHandler {
	r := router.New()
	r.RedirectTrailingSlash, r.RedirectFixedPath, r.HandleOPTIONS = false, false, false
	r.NotFound = func(ctx *fasthttp.RequestCtx) { s.refuse(ctx, NotFound()) }
	r.MethodNotAllowed = r.NotFound
	r.PanicHandler = func(ctx *fasthttp.RequestCtx, cause any) { s.refuse(ctx, s.panicked(ctx, cause)) }
	for i := range s.routes {
		rt := &s.routes[i]
		if !rt.Streamed {
			continue
		}
		r.Handle(rt.Method, rt.pattern(), func(ctx *fasthttp.RequestCtx) {
			req, err := s.newRequest(ctx, rt)
			s.believe(ctx, req)
			if err != nil {
				ctx.SetConnectionClose()
				s.fail(ctx, req, err)
				return
			}
			s.serveIncoming(life, ctx, req)
		})
	}
	return r.Handler
}
