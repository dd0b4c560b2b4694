package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"berth/api/edge/answer"
	"berth/api/edge/connection"
	"berth/compute"
)

// Fixed limits of the server.
const (
	readFactorStart    = 6 // Start bodies are large: times ReadTimeout.
	idleTimeout        = 60 * time.Second
	requestTimeout     = 10 * time.Second // For a handler, without what it is asked to wait.
	shutdownTimeout    = 5 * time.Second
	headerBytes        = 8 << 10
	maxRequestsPerConn = 10_000
	closingConns       = 1024 // That the listener does not count any more, and whose goroutine has not ended.
)

// Server serves routes: connections, and the way of a request from its bytes to
// its answer.
type Server struct {
	*Core
	access *access
	routes []Route
	life   atomic.Pointer[lifetime]

	streaming sync.WaitGroup // Streams of events.
	events    answer.EventBuffers
}

// New returns a Server for cfg that has no routes and does nothing yet.
func New(cfg Config) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	c, err := newCore(cfg)
	if err != nil {
		return nil, err
	}
	a := &access{Core: c, rates: newRateLimits(cfg.Limits, cfg.Stopwatch), touched: newTouched()}
	return &Server{Core: c, access: a}, nil
}

// SetRoutes sets what the server serves. It comes before serving.
func (s *Server) SetRoutes(routes []Route) {
	s.routes = routes
	for i := range s.routes {
		s.routes[i].params = s.routes[i].Parameters()
	}
}

// Stranger counts a request without a good credential and returns its refusal.
func (s *Server) Stranger(r *Request) error { return s.access.stranger(r) }

// KeyHolder returns whom an API key makes its holder, in the request's view.
func (s *Server) KeyHolder(r *Request, text string) (Caller, bool) {
	return s.access.identifyKey(r.View, text)
}

// Drain sends clients elsewhere while the server still answers: /readyz answers
// 503 from now on, and every answer closes its connection.
func (s *Server) Drain() { s.draining.Store(true) }

// Serve answers requests from l until ctx ends. Streams end then, other
// requests in flight get a few seconds. It returns when all of that is over,
// with l closed.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	lingering := connection.NewListener(ctx, l, connection.Limits{
		All: s.cfg.Limits.Conns, PerNetwork: s.cfg.Limits.ConnsPerIP, TLS: s.cfg.TLS, Answer: s.crowdedOut,
	})
	defer lingering.Wait()
	l = lingering
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
	}
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	life := lifetime{soft: ctx, hard: hard}
	s.life.Store(&life)
	defer s.life.Store(nil)
	server := s.newServer(life) //nolint:contextcheck // Requests live as life says.
	ended := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { ended <- server.Serve(l) })
	wg.Go(func() { s.access.recordUse(ctx) })
	defer s.streaming.Wait() // They end with ctx.
	defer wg.Wait()
	select {
	case err := <-ended:
		return fmt.Errorf("serve api: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(hard, shutdownTimeout)
	defer cancel()
	if err := server.ShutdownWithContext(grace); err != nil {
		s.log.Warn("requests cut off by shutdown", "err", err)
	}
	_ = l.Close() // Not closed by fasthttp if ctx ended before it began to serve.
	return nil
}

// newServer returns the fasthttp server with every limit set, because fasthttp
// sets none by default.
func (s *Server) newServer(life lifetime) *fasthttp.Server {
	limits := s.cfg.Limits
	return &fasthttp.Server{
		Handler:        s.handler(life),
		ErrorHandler:   s.parserError,
		HeaderReceived: s.headerReceived,

		ReadTimeout:        limits.ReadTimeout,
		IdleTimeout:        idleTimeout,
		WriteTimeout:       connection.WriteTimeout,
		ReadBufferSize:     headerBytes,
		StreamRequestBody:  true,                        // See receive.
		Concurrency:        limits.Conns + closingConns, // The listener refuses connections beyond Conns.
		MaxRequestsPerConn: maxRequestsPerConn,
		TCPKeepalive:       true,
		ReduceMemoryUsage:  true,
		KeepHijackedConns:  true, // Streams of events use them without what fasthttp has for requests.

		NoDefaultServerHeader:        true,
		DisablePreParseMultipartForm: true,
		SecureErrorLogMessage:        true,
		Logger:                       parserLog{s.log},
	}
}

// parserLog logs fasthttp's messages.
type parserLog struct{ log *slog.Logger }

// Printf logs one message of fasthttp.
func (l parserLog) Printf(format string, args ...any) {
	l.log.Debug("connection error", "err", fmt.Sprintf(format, args...))
}

// headerReceived has the handler called before the body is there, unless the
// body is small.
func (s *Server) headerReceived(header *fasthttp.RequestHeader) fasthttp.RequestConfig {
	if header.ContentLength() > InlineBody {
		return fasthttp.RequestConfig{MaxRequestBodySize: 1} // Bytes that are read ahead.
	}
	return fasthttp.RequestConfig{MaxRequestBodySize: InlineBody}
}

// minCredential is the length of the shortest credential there is.
const minCredential = 40

// parserError answers bytes that are not a valid request.
func (s *Server) parserError(ctx *fasthttp.RequestCtx, err error) {
	r := &Request{id: s.NewUUID().String(), begun: s.cfg.Stopwatch()}
	s.fail(ctx, r, parserErrorOf(err))
}

// crowdedOut returns the answer to a connection beyond a limit: that of its customer, or that
// of all.
func (s *Server) crowdedOut(crowded bool) []byte {
	err := compute.Errorf(compute.CodeUnavailable, "This node has as many connections as it serves at once.")
	if crowded {
		err = compute.Errorf(compute.CodeRateLimited, "This address has as many connections as one may have at once.")
	}
	var ctx fasthttp.RequestCtx
	ctx.Init(&fasthttp.Request{}, nil, nil)
	s.fail(&ctx, &Request{id: s.NewUUID().String(), begun: s.cfg.Stopwatch()}, err.Named("too_many_connections"))
	ctx.SetConnectionClose()
	var text bytes.Buffer
	_, _ = ctx.Response.WriteTo(&text) // A buffer takes everything.
	return text.Bytes()
}

// parserErrorOf returns the client's error for a request that could not be
// read.
func parserErrorOf(err error) error {
	var small *fasthttp.ErrSmallBuffer
	var slow interface{ Timeout() bool }
	switch {
	case errors.As(err, &small):
		return compute.Errorf(compute.CodeTooLarge,
			"The header is larger than %d bytes.", headerBytes).Named("header_too_large")
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		return compute.Errorf(compute.CodeTooLarge, "The body is too large.")
	case errors.As(err, &slow) && slow.Timeout():
		return compute.Errorf(compute.CodeTimeout, "The request took too long to arrive.")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return compute.Errorf(compute.CodeInvalid, "The request ended early.").Named("bad_request")
	}
	return compute.Errorf(compute.CodeInvalid, "The request is not valid HTTP.").Named("bad_request")
}
