package edge

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/connection"
	"berth/api/edge/limit"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

// Request is one request. Nothing in it refers to the buffers of fasthttp. A
// handler reads the exported fields. It may move View to a newer state, set ETag,
// and name the user who signs in as Caller.User.
type Request struct {
	Ctx    context.Context //nolint:containedctx // A request is a scope of its own.
	Caller Caller
	View   *fsm.View

	Params map[string]string // Parameters of the path, decoded once.
	Query  any               // The query, read into the route's type.
	Body   any               // The body, read into the route's type.

	IP          string
	Base        string // Base of URLs in the answer.
	LastEventID string
	IfNoneMatch string
	IfMatch     string
	Accept      string
	Signature   string // Signature of the payment provider.

	Repeat bool           // It was decided before.
	First  command.Result // The decision then.

	ETag string // ETag of the answer.

	id     string // X-Request-Id.
	begun  time.Time
	route  *Route
	life   lifetime
	cancel context.CancelFunc // Ends Ctx.

	args  map[string]string // Arguments of the query, as they came.
	raw   []byte            // The body as it came.
	hold  limit.Hold        // The reservation for raw.
	large int               // Bytes of the answer, if it is large.
	turn  func()            // Ends the turn that the request has; nil for none. See turns.

	mediaType   string
	encoding    string
	bearer      string
	orgSlug     string
	idempotency string

	byteRange string // The header Range.
	ifRange   string

	incoming *incoming // The body, if it is read as it comes.

	seed     compute.UUID // Names the request where another node handed it on; zero elsewhere.
	conn     net.Conn     // Connection of the client, for Watch; nil for none.
	handedOn bool         // Another node hands the answer on, so it goes through fasthttp.
	sent     bool         // The client sent more while the answer was held.

	stale bool              // View may be behind.
	near  bool              // The client is on this machine; known where a scraper is needed.
	op    command.Op        // Makes its proposals idempotent.
	index uint64            // Raft index of the last write of the request.
	extra map[string]string // More headers of the answer.
}

// Caller is the authenticated sender of a request.
type Caller struct {
	Actor command.Actor
	User  *compute.User // Nil for the root token.
	Org   *compute.Org  // The organization it acts in; nil for the root token.

	Session compute.UUID // The login of an access token; zero for other credentials.

	role   compute.OrgRole
	scopes []compute.Scope // Scopes of its API key, if that is restricted.
	shared bool            // Its API key is one of the organization's, not the user's own.
}

// name identifies the caller's key, or the user without one; "" for nobody.
func (c *Caller) name() string {
	switch {
	case !c.Actor.Key.IsZero():
		return "key " + c.Actor.Key.String()
	case c.User != nil:
		return "user " + c.Actor.User.String()
	}
	return ""
}

// newRequest copies everything that a handler may use out of ctx, but for the
// body: see receive.
func (s *Server) newRequest(ctx *fasthttp.RequestCtx, rt *Route) (*Request, error) {
	header := &ctx.Request.Header
	r := &Request{
		id: s.requestID(string(header.Peek("X-Request-Id"))), begun: s.cfg.Stopwatch(), route: rt,
		IP:          ctx.RemoteIP().String(),
		mediaType:   string(header.ContentType()),
		encoding:    string(header.Peek("Content-Encoding")),
		bearer:      bearerOf(string(header.Peek("Authorization"))),
		orgSlug:     string(header.Peek("X-Org-Slug")),
		idempotency: string(header.Peek("Idempotency-Key")),
		LastEventID: string(header.Peek("Last-Event-Id")),
		IfNoneMatch: string(header.Peek("If-None-Match")),
		Accept:      string(header.Peek("Accept")),
		IfMatch:     string(header.Peek("If-Match")),
		Signature:   string(header.Peek("Stripe-Signature")),
		byteRange:   string(header.Peek("Range")),
		ifRange:     string(header.Peek("If-Range")),
		Base:        s.baseURL(string(ctx.Host()), ctx.IsTLS()),
	}
	if err := checkHeader(header); err != nil {
		return r, err
	}
	if rt == nil {
		return r, nil
	}
	r.near = rt.Need == NeedScraper && isNear(ctx)
	return r, r.copyURL(ctx)
}

// isNear reports whether a client is on this machine, and no proxy that says it is one.
func isNear(ctx *fasthttp.RequestCtx) bool {
	for _, name := range []string{"X-Forwarded-For", "Forwarded", "Via", "X-Real-Ip"} {
		if len(ctx.Request.Header.Peek(name)) > 0 {
			return false
		}
	}
	return ctx.RemoteIP().IsLoopback() || ctx.RemoteIP().Equal(ctx.LocalIP()) && !ctx.RemoteIP().IsUnspecified()
}

// Raw returns the body of a request whose route is Raw. It is valid until the
// handler returns.
func (r *Request) Raw() []byte { return r.raw }

// Held returns the context of an answer that is held: it ends when the node
// stops serving, and not at the request's deadline.
func (r *Request) Held() context.Context { return r.life.soft }

// Renew restarts the request's deadline.
func (r *Request) Renew() {
	r.release()
	r.Ctx, r.cancel = context.WithTimeout(r.life.hard, requestTimeout)
	if r.stale {
		r.Ctx = compute.StayHere(r.Ctx)
	}
}

// SetHeader adds a header to the answer.
func (r *Request) SetHeader(name, value string) {
	if r.extra == nil {
		r.extra = make(map[string]string)
	}
	r.extra[name] = value
}

// Log returns log with the identifier of the request.
func (r *Request) Log(log *slog.Logger) *slog.Logger { return log.With("request", r.id) }

// release ends the request's deadline.
func (r *Request) release() {
	if r.cancel != nil {
		r.cancel()
	}
}

// Watch calls gone when the client hangs up, until stop is called.
func (r *Request) Watch(gone func()) (stop func()) {
	if r.conn == nil {
		return func() {}
	}
	end := connection.Watch(r.conn, gone)
	return func() { r.sent = end() || r.sent }
}

// untilHangUp returns the request's context, which also ends when the client
// hangs up before stop is called.
func (r *Request) untilHangUp() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(r.Ctx)
	end := r.Watch(cancel)
	return ctx, func() {
		end()
		cancel()
	}
}

// copyURL copies the parameters of the path and of the query.
func (r *Request) copyURL(ctx *fasthttp.RequestCtx) error {
	r.Params = make(map[string]string, len(r.route.params))
	for _, name := range r.route.params {
		text, _ := ctx.UserValue(name).(string)
		plain, err := url.PathUnescape(strings.Clone(text))
		if err != nil {
			return NotFound()
		}
		r.Params[name] = plain
	}
	r.args = make(map[string]string)
	faults := new(wire.Faults)
	for key, value := range ctx.QueryArgs().All() {
		if _, twice := r.args[string(key)]; twice {
			faults.Value("the parameter is there twice", "query", string(key))
		}
		r.args[string(key)] = string(value)
	}
	return faults.Err()
}

// bearerOf returns the token of an Authorization header, "" for none.
func bearerOf(header string) string {
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// baseURL returns the URL at which the client reaches this node.
func (s *Server) baseURL(host string, tls bool) string {
	switch {
	case s.cfg.PublicURL != "":
		return strings.TrimRight(s.cfg.PublicURL, "/")
	case tls:
		return "https://" + host
	}
	return "http://" + host
}

// HandedOn reports whether another node got the request and hands the answer on.
func (r *Request) HandedOn() bool { return r.handedOn }

// singular returns the headers that may occur once. A proxy that reads the
// first of two would see another caller, organization or request than a server
// that reads the last.
func singular() []string {
	return []string{
		"Authorization", "X-Org-Slug", "Idempotency-Key", "Host", "Content-Type", "Content-Length", "Content-Encoding",
		"Last-Event-Id", "Range", "If-Range", "If-Match", "If-None-Match", "Stripe-Signature",
	}
}

// checkHeader refuses headers that fasthttp accepts and proxies may read in
// another way. These are other versions, lines that end without a carriage
// return, headers that continue on the next line and names with spaces. They
// are also transfer codings other than chunked, two lengths for one body, and
// repeats of singular headers.
func checkHeader(header *fasthttp.RequestHeader) error {
	if version := string(header.Protocol()); version != "HTTP/1.1" && version != "HTTP/1.0" {
		return compute.Errorf(compute.CodeInvalid, "The version is neither HTTP/1.1 nor HTTP/1.0.").Named("bad_request")
	}
	var length, chunked bool
	single := singular()
	seen := make([]bool, len(single))
	for line := range bytes.Lines(header.RawHeaders()) {
		name, value, err := headerLine(line)
		if err != nil {
			return err
		}
		length = length || bytes.EqualFold(name, []byte("Content-Length"))
		if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			if !bytes.EqualFold(bytes.Trim(value, " \t\r\n"), []byte("chunked")) {
				return compute.Errorf(compute.CodeInvalid, "Transfer-Encoding may only be chunked.").Named("bad_request")
			}
			chunked = true
		}
		i := slices.IndexFunc(single, func(s string) bool { return bytes.EqualFold(name, []byte(s)) })
		if i < 0 {
			continue
		}
		if seen[i] {
			return compute.Errorf(compute.CodeInvalid, "The header %s is there twice: send one.", single[i]).
				Named("duplicate_header")
		}
		seen[i] = true
	}
	if length && chunked {
		return compute.Errorf(compute.CodeInvalid, "Content-Length and Transfer-Encoding exclude each other.")
	}
	return nil
}

// headerLine returns the name and the value in a line of a header, none in the
// empty line at its end.
func headerLine(line []byte) (name, value []byte, err error) {
	name, value, _ = bytes.Cut(line, []byte(":"))
	switch {
	case !bytes.HasSuffix(line, []byte("\r\n")):
		err = compute.Errorf(compute.CodeInvalid, "A line of the header does not end with CR and LF.").Named("bad_request")
	case line[0] == ' ', line[0] == '\t':
		err = compute.Errorf(compute.CodeInvalid, "A header continues on the next line.")
	case bytes.ContainsAny(bytes.TrimSuffix(name, []byte("\r\n")), " \t"):
		err = compute.Errorf(compute.CodeInvalid, "The name of a header has a space.").Named("bad_request")
	}
	return name, value, err
}

// maxRequestID is the length up to which a client's request id is kept.
const maxRequestID = 64

// requestID returns the client's request id where it is harmless, else a new
// one.
func (c *Core) requestID(given string) string {
	harmless := func(r rune) bool {
		return r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if given != "" && len(given) <= maxRequestID &&
		!strings.ContainsFunc(given, func(r rune) bool { return !harmless(r) }) {
		return given
	}
	return c.NewUUID().String()
}

// NewUUID returns a random identifier.
func (c *Core) NewUUID() compute.UUID {
	var u compute.UUID
	// A failing source would repeat identifiers: nothing can be served then.
	if _, err := io.ReadFull(c.cfg.Rand, u[:]); err != nil {
		panic("api: no randomness: " + err.Error())
	}
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return u
}

// NewID returns an identifier that begins with the time: UUIDv7.
func (c *Core) NewID() compute.UUID {
	u := c.NewUUID()
	ms := c.Now().UnixMilli()
	for i := range 6 {
		u[i] = byte(ms >> (40 - 8*i))
	}
	u[6] = u[6]&0x0f | 0x70
	return u
}
