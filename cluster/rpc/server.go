package rpc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"berth/compute"
)

// NoMethod is the detail of the error for a method that the other side does not
// have. That side may have another version or another role.
const NoMethod = "no_method"

// Limits of the serving end.
const (
	maxStreams       = 1024 // Concurrent calls on one connection,
	maxServerStreams = 2560 // and on that of a server, which has one for each request that it passes on.
	maxTimeout       = 5 * time.Minute

	// A peer without a certificate makes one call at a time, and few in all. A stream
	// that it does not close keeps its window for closeTimeout.
	maxAnonymousCalls = 4
	maxAnonymousBytes = MaxJoin + 16<<10 // Bytes that it may send.
)

// Peer is the caller, according to its certificate. ID is zero for a caller
// without a certificate, which may only join.
type Peer struct {
	ID   compute.NodeID
	Role compute.Role
}

// Anonymous reports whether the peer showed no certificate.
func (p Peer) Anonymous() bool { return p.ID.IsZero() }

// Handler answers one call. Its context ends with the caller's deadline or with
// the connection. A *compute.Error is returned unchanged, any other error as
// internal.
type Handler func(ctx context.Context, peer Peer, request []byte) ([]byte, error)

// StreamHandler answers one call of a stream method and then owns the stream
// until it returns. It sends its answer with Accept. An error before that
// becomes the call's error; a later one only ends the stream.
type StreamHandler func(ctx context.Context, peer Peer, request []byte, stream *Stream) error

// Stream is the server side of a stream method's call.
type Stream struct {
	*stream

	codec    Codec
	accepted bool
	watches  sync.WaitGroup // Goroutines of UntilClosed.
}

// Accept sends the method's answer. Later reads and writes are the method's raw
// bytes.
func (s *Stream) Accept(answer []byte) error {
	s.accepted = true
	return s.codec.write(s.stream, response{Payload: answer}, MaxResponse)
}

// UntilClosed returns a context that ends with ctx, when the caller closes the
// stream and when the connection is gone. In the last two cases a write that waits
// for the caller fails. Further bytes of the caller go to received, or are dropped if that
// is nil: nothing else may read from the stream.
func (s *Stream) UntilClosed(ctx context.Context, received func([]byte)) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() {
		_ = s.SetReadDeadline(time.Unix(1, 0)) // It never fails.
	})
	s.watches.Go(func() {
		defer cancel()
		defer stop()
		if err := discard(s.stream, received); !errors.Is(err, yamux.ErrTimeout) {
			s.stream.Close()
		}
	})
	return ctx
}

// discard reads until that fails.
func discard(r io.Reader, received func([]byte)) error {
	buf := make([]byte, 64)
	for {
		n, err := r.Read(buf)
		if received != nil && n > 0 {
			received(buf[:n])
		}
		if err != nil {
			return err
		}
	}
}

// Server dispatches calls to handlers by method.
type Server struct {
	Codec  Codec
	Logger *slog.Logger
	// Allow returns why peer may not call method, or nil.
	Allow func(peer Peer, method string) error
	// Done is called after every call.
	Done func(method string, code compute.Code, took time.Duration)

	mu      sync.RWMutex
	unary   map[string]Handler
	streams map[string]StreamHandler
}

// Handle registers h for method. It panics if the method has a handler.
func (s *Server) Handle(method string, h Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known(method) {
		panic("rpc: two handlers for " + method)
	}
	if s.unary == nil {
		s.unary = make(map[string]Handler)
	}
	s.unary[method] = h
}

// HandleStream registers h for the stream method. It panics if the method has a
// handler.
func (s *Server) HandleStream(method string, h StreamHandler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known(method) {
		panic("rpc: two handlers for " + method)
	}
	if s.streams == nil {
		s.streams = make(map[string]StreamHandler)
	}
	s.streams[method] = h
}

func (s *Server) known(method string) bool {
	return s.unary[method] != nil || s.streams[method] != nil
}

// ServeConn serves the calls of peer on conn until the connection or ctx ends,
// and waits for its handlers.
func (s *Server) ServeConn(ctx context.Context, conn net.Conn, peer Peer) error {
	open, calls := maxStreams, math.MaxInt
	switch {
	case peer.Anonymous():
		open, calls = 1, maxAnonymousCalls
		conn = &limitedConn{Conn: conn, left: maxAnonymousBytes}
	case peer.Role == compute.RoleServer:
		open = maxServerStreams
	}
	session, err := newServerSession(conn, s.Logger, peer.Anonymous())
	if err != nil {
		conn.Close()
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { session.Close() })
	slots := make(chan struct{}, open) // One token per open call.
	var wg sync.WaitGroup
	for range calls {
		var stream *stream
		if stream, err = session.AcceptStream(); err != nil {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.serveStream(ctx, stream, peer)
		})
	}
	if err == nil { // It has made all the calls that it may.
		wg.Wait()
	}
	cancel()
	stop()
	session.Close()
	wg.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, yamux.ErrSessionShutdown) {
		return nil
	}
	return err
}

// limitedConn is a connection from which no more than left bytes are read.
type limitedConn struct {
	net.Conn
	left int
}

// Read reads from the connection while some may be read.
func (c *limitedConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, compute.Errorf(compute.CodeTooLarge, "A peer without a certificate sends too much.")
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// serveStream answers one call.
func (s *Server) serveStream(ctx context.Context, stream *stream, peer Peer) {
	defer stream.Close()
	start := time.Now() //nolint:forbidigo // Measures the call.
	var req request
	if err := stream.SetReadDeadline(start.Add(requestTimeout)); err != nil {
		return
	}
	var from io.Reader = patient{stream}
	limit := MaxRequest
	if peer.Anonymous() {
		from, limit = stream, MaxJoin
	}
	if err := s.Codec.read(from, &req, limit); err != nil {
		s.Logger.Debug("call not understood", "node", peer.ID, "err", err)
		return
	}
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	err := s.dispatch(ctx, stream, peer, &req)
	if s.Done != nil {
		s.Done(req.Method, compute.CodeOf(err), time.Since(start))
	}
}

// dispatch executes the call and sends its answer. Only the handler keeps the payload.
func (s *Server) dispatch(ctx context.Context, stream *stream, peer Peer, req *request) error {
	payload := req.Payload
	req.Payload = nil
	s.mu.RLock()
	unary, streaming := s.unary[req.Method], s.streams[req.Method]
	s.mu.RUnlock()
	err := error(compute.Errorf(compute.CodeNotFound, "This node has no method %q.", req.Method).Named(NoMethod))
	if unary != nil || streaming != nil {
		err = s.Allow(peer, req.Method)
	}
	var answer []byte
	switch {
	case err != nil:
	case streaming != nil:
		var accepted bool
		if accepted, err = s.own(ctx, streaming, peer, payload, stream); accepted {
			return err
		}
	default:
		timeout := min(time.Duration(req.TimeoutMS)*time.Millisecond, maxTimeout)
		callCtx, cancel := context.WithTimeout(ctx, timeout)
		answer, err = unary(callCtx, peer, payload)
		cancel()
	}
	if sendErr := s.answer(stream, answer, err); sendErr != nil {
		s.Logger.Debug("answer not sent", "node", peer.ID, "err", sendErr)
	}
	return err
}

// own calls the handler of a stream method, and reports whether that has answered.
func (s *Server) own(
	ctx context.Context, handle StreamHandler, peer Peer, payload []byte, stream *stream,
) (accepted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	st := &Stream{stream: stream, codec: s.Codec}
	err = handle(ctx, peer, payload, st)
	cancel()
	st.watches.Wait()
	return st.accepted, err
}

// answer sends the result of a call.
func (s *Server) answer(stream *stream, payload []byte, err error) error {
	resp := response{Payload: payload}
	if err != nil {
		resp = response{Err: wireError(err)}
	}
	return s.Codec.write(patient{stream}, resp, MaxResponse)
}

// wireError converts err for the other side: unchanged with its code,
// unavailable after a timeout, or internal with its text. Only operators of the
// cluster see that text.
func wireError(err error) *compute.Error {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return compute.Errorf(compute.CodeUnavailable, "The call did not end in time.").Retry(time.Second)
	}
	return &compute.Error{Code: compute.CodeInternal, Message: err.Error()}
}
