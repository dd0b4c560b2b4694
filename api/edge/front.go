package edge

import (
	"bytes"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"berth/api/edge/answer"
	"berth/compute"
)

// Limits of what is compressed.
const (
	gzipLeast = 1 << 10 // Bytes of the smallest answer.
	gzipMost  = 8 << 20 // Bytes of the largest: larger ones hold a processor for too long.
)

// Front is how browsers and names reach the API.
type Front struct {
	// Hosts are the names in the header Host that are served; none for all. Probes are
	// served under any name.
	Hosts []string
	// Origins are the origins of web pages that may call the API (CORS), or * for all;
	// none for none.
	Origins []string
	// AccessLog has every request logged.
	AccessLog bool
}

// front returns a handler that answers some requests before next, and changes
// the answers of next.
func (s *Server) front(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if !s.servesHost(ctx) {
			ctx.SetConnectionClose()
			s.refuse(ctx, compute.Errorf(compute.CodeInvalid,
				"This node is not served under that name: see api.hosts.").Named("unknown_host"))
			return
		}
		if isService(ctx.URI().PathOriginal()) {
			next(ctx) // Its answers are its own.
			return
		}
		if s.preflight(ctx) {
			return
		}
		next(ctx)
		compress(ctx)
	}
}

// servesHost reports whether the request names a host that is served.
func (s *Server) servesHost(ctx *fasthttp.RequestCtx) bool {
	if len(s.cfg.Front.Hosts) == 0 {
		return true
	}
	host := strings.ToLower(string(ctx.Host()))
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if slices.Contains(s.cfg.Front.Hosts, host) {
		return true
	}
	for _, own := range []string{s.cfg.PublicURL, s.cfg.ServicesURL} {
		if u, err := url.Parse(own); err == nil && host != "" && strings.EqualFold(u.Hostname(), host) {
			return true
		}
	}
	path := string(ctx.URI().PathOriginal())
	return isProbe(path) || path == "/metrics" // Balancers and scrapers use addresses.
}

// isProbe reports whether balancers ask for a path again and again.
func isProbe(path string) bool { return path == "/livez" || path == "/readyz" || path == "/healthz" }

// allowedOrigin returns the origin of the page that makes the request, if it may.
func (s *Server) allowedOrigin(ctx *fasthttp.RequestCtx) string {
	if len(s.cfg.Front.Origins) == 0 {
		return ""
	}
	origin := string(ctx.Request.Header.Peek("Origin"))
	if origin != "" && (slices.Contains(s.cfg.Front.Origins, origin) || slices.Contains(s.cfg.Front.Origins, "*")) {
		return origin
	}
	return ""
}

// share lets a page of an allowed origin read the answer. There are no cookies to send:
// callers have tokens.
func (s *Server) share(ctx *fasthttp.RequestCtx) bool {
	if len(s.cfg.Front.Origins) == 0 {
		return false
	}
	h := &ctx.Response.Header
	h.Add("Vary", "Origin")
	origin := s.allowedOrigin(ctx)
	if origin == "" {
		return false
	}
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers",
		"X-Request-Id, X-Next-Cursor, ETag, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset")
	return true
}

// preflight answers the question of a browser whether a page may make a request. It
// reports false for everything else.
func (s *Server) preflight(ctx *fasthttp.RequestCtx) bool {
	asked := ctx.Request.Header.Peek("Access-Control-Request-Method")
	if !ctx.IsOptions() || len(asked) == 0 || !s.share(ctx) {
		return false
	}
	h := &ctx.Response.Header
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
	allowed := "Authorization, Content-Type, Idempotency-Key, X-Org-Slug, X-Request-Id, Last-Event-ID, " +
		"If-Match, If-None-Match, Range"
	if isModel(ctx.URI().PathOriginal()) {
		for _, name := range clientHeaders(string(ctx.Request.Header.Peek("Access-Control-Request-Headers"))) {
			allowed += ", " + name
		}
	}
	h.Set("Access-Control-Allow-Headers", allowed)
	h.Set("Access-Control-Max-Age", "600")
	return true
}

// clientHeader is a header by which OpenAI's clients say what they are and what they want. Each
// version of them has others.
var clientHeader = regexp.MustCompile(`^(?i:x-stainless|openai)-[A-Za-z0-9-]{1,64}$`)

// clientHeaders returns those of a list of header names that OpenAI's clients send.
func clientHeaders(asked string) []string {
	var names []string
	for name := range strings.SplitSeq(asked, ",") {
		if name = strings.TrimSpace(name); clientHeader.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// secure sets the headers that keep browsers from doing more with an answer than
// showing it.
func (s *Server) secure(h *fasthttp.ResponseHeader) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if s.cfg.TLS != nil {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// compress compresses an answer for a client that asks for it: one that is there as a whole, or
// a list, piece by piece.
func compress(ctx *fasthttp.RequestCtx) {
	r := &ctx.Response
	if ctx.Hijacked() || r.StatusCode() != fasthttp.StatusOK || ctx.IsHead() ||
		len(r.Header.Peek("Content-Encoding")) > 0 || len(r.Header.Peek("Content-Range")) > 0 ||
		!textual(r.Header.ContentType()) {
		return
	}
	var body []byte
	rows, isList := r.BodyStream().(*answer.ListReader)
	held, isHeld := r.BodyStream().(*heldBody)
	switch {
	case isHeld:
		body = held.body
	case !r.IsBodyStream():
		body = r.Body()
	}
	if !isList && (len(body) < gzipLeast || len(body) > gzipMost) {
		return
	}
	r.Header.Add("Vary", "Accept-Encoding")
	if !ctx.Request.Header.HasAcceptEncoding("gzip") {
		return
	}
	if isList {
		rows.Compress()
	} else if body = fasthttp.AppendGzipBytesLevel(nil, body, fasthttp.CompressBestSpeed); isHeld {
		held.Reset(body)
		r.Header.SetContentLength(len(body))
	} else {
		r.SetBodyRaw(body)
	}
	r.Header.Set("Content-Encoding", "gzip")
	if tag := r.Header.Peek("ETag"); len(tag) > 0 && !bytes.HasPrefix(tag, []byte("W/")) {
		r.Header.Set("ETag", "W/"+string(tag)) // The bytes are others.
	}
}

// textual reports whether a media type is one that shrinks.
func textual(media []byte) bool {
	for _, kind := range []string{"application/json", "application/openmetrics-text", "text/", "image/svg+xml"} {
		if bytes.HasPrefix(media, []byte(kind)) {
			return true
		}
	}
	return false
}

// methods are the methods of a path.
type methods struct {
	pattern string
	names   []string
}

// methodsOf returns the methods of each path, in the order of routes, which the router
// needs: HEAD is where GET is. Routes of one path may name its parameters differently.
func methodsOf(routes []Route) []methods {
	var all []methods
	at := make(map[string]int)
	for i := range routes {
		path := parameter.ReplaceAllString(routes[i].pattern(), "{x")
		n, known := at[path]
		if !known {
			n, at[path] = len(all), len(all)
			all = append(all, methods{routes[i].pattern(), []string{fasthttp.MethodOptions}})
		}
		all[n].names = append(all[n].names, routes[i].Method)
		if routes[i].Method == fasthttp.MethodGet {
			all[n].names = append(all[n].names, fasthttp.MethodHead)
		}
		slices.Sort(all[n].names)
	}
	return all
}

// parameter is a parameter in a pattern.
var parameter = regexp.MustCompile(`\{[a-z0-9_]+`)

// options answers which methods a path has.
func (s *Server) options(ctx *fasthttp.RequestCtx, names []string) {
	r, err := s.newRequest(ctx, nil)
	if err != nil {
		ctx.SetConnectionClose()
		s.fail(ctx, r, err)
		return
	}
	s.writeHeaders(ctx, r)
	ctx.Response.Header.Set("Allow", strings.Join(names, ", "))
	ctx.SetContentType("application/json")
	ctx.Response.SetBodyString(`{"methods":["` + strings.Join(names, `","`) + `"]}`)
	s.observe(r, fasthttp.MethodOptions, fasthttp.StatusOK, s.took(r))
}
