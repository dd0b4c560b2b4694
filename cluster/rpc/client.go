package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/yamux"

	"berth/compute"
)

// DefaultTimeout bounds a call whose context has no deadline.
const DefaultTimeout = 30 * time.Second

// ErrNotSent means that a call certainly did not reach the other side.
var ErrNotSent = errors.New("the call was not sent")

// Client is the calling end of one connection. Its methods may be called
// concurrently.
type Client struct {
	session *mux
	codec   Codec
}

// NewClient starts the client on conn and takes ownership of conn.
func NewClient(conn net.Conn, codec Codec, logger *slog.Logger) (*Client, error) {
	session, err := newMux(frame(conn), func(conn net.Conn) (*yamux.Session, error) {
		return yamux.Client(conn, muxConfig(logger))
	})
	if err != nil {
		return nil, fmt.Errorf("start session: %w", err)
	}
	return &Client{session: session, codec: codec}, nil
}

// Closed reports whether the connection is gone.
func (c *Client) Closed() bool { return c.session.IsClosed() }

// Close ends the connection and every call on it.
func (c *Client) Close() error { return c.session.Close() }

// Call sends payload to the method and returns its answer. A *compute.Error
// came from the method. ErrNotSent means that nothing happened. After any other
// error the method may have been executed.
func (c *Client) Call(ctx context.Context, method string, payload []byte) ([]byte, error) {
	ctx, cancel := withDefaultTimeout(ctx)
	defer cancel()
	stream, err := c.session.OpenStream()
	if err != nil {
		return nil, fmt.Errorf("call %s: %w: %w", method, ErrNotSent, err)
	}
	defer stream.Close()
	stop := context.AfterFunc(ctx, func() { interrupt(stream) })
	defer stop()
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline).Milliseconds()
	answer, err := c.exchange(stream, request{Method: method, TimeoutMS: max(left, 1), Payload: payload})
	if err != nil {
		return nil, callError(ctx, method, err)
	}
	return answer, nil
}

// Open calls a stream method and returns its answer and the stream, which the
// caller closes. The stream ends with ctx.
func (c *Client) Open(ctx context.Context, method string, payload []byte) ([]byte, io.ReadWriteCloser, error) {
	stream, err := c.session.OpenStream()
	if err != nil {
		return nil, nil, fmt.Errorf("open %s: %w: %w", method, ErrNotSent, err)
	}
	stop := context.AfterFunc(ctx, func() { interrupt(stream) })
	if err := stream.SetReadDeadline(time.Now().Add(DefaultTimeout)); err != nil {
		stream.Close()
		return nil, nil, callError(ctx, method, err)
	}
	answer, err := c.exchange(stream, request{Method: method, Payload: payload})
	if err == nil && ctx.Err() == nil {
		err = stream.SetReadDeadline(time.Time{})
	}
	if err != nil || ctx.Err() != nil {
		stop()
		stream.Close()
		return nil, nil, callError(ctx, method, errors.Join(err, ctx.Err()))
	}
	return answer, &openStream{stream: stream, stop: stop}, nil
}

// openStream stops watching its context when it is closed.
type openStream struct {
	*stream

	stop func() bool
}

func (s *openStream) Close() error {
	s.stop()
	return s.stream.Close()
}

// exchange sends the request and waits for the answer.
func (c *Client) exchange(stream *stream, req request) ([]byte, error) {
	if err := c.codec.writeRequest(stream, req); err != nil {
		return nil, err
	}
	var resp response
	if err := c.codec.read(stream, &resp, MaxResponse); err != nil {
		return nil, err
	}
	if resp.Err != nil {
		return nil, resp.Err
	}
	return resp.Payload, nil
}

// interrupt ends pending operations on the stream.
func interrupt(stream *stream) {
	// It fails only on a stream that is already closed.
	_ = stream.SetDeadline(time.Unix(1, 0))
}

// callError returns the error of a call. The context's error takes precedence
// over the stream error that it caused.
func callError(ctx context.Context, method string, err error) error {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("call %s: %w", method, err)
}

// withDefaultTimeout bounds a context without a deadline.
func withDefaultTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}
