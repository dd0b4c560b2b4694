package rpc

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// mux is one end of a connection with many streams. Once a session of yamux is shut down,
// each of its reads and writes that waits polls whether its stream is closed. Thousands of
// them leave the goroutine that closes the streams no time: the node would answer nobody for
// many seconds after the end of one connection. So a mux ends them by a deadline before the
// session shuts down: when its connection fails, and when it is closed.
type mux struct {
	*yamux.Session

	mu   sync.Mutex
	open map[*stream]struct{} // Nil once the streams are ended.
}

// stream is one stream of a mux.
type stream struct {
	*yamux.Stream

	of *mux
}

// newMux returns the end of conn that start makes a session of.
func newMux(conn net.Conn, start func(net.Conn) (*yamux.Session, error)) (m *mux, err error) {
	m = &mux{open: make(map[*stream]struct{})}
	if m.Session, err = start(&failing{Conn: conn, failed: m.endStreams}); err != nil {
		return nil, err
	}
	go func() {
		<-m.CloseChan() // The other side may not have answered in time.
		m.endStreams()
	}()
	return m, nil
}

// failing is a connection that tells when it fails, before it returns the error.
type failing struct {
	net.Conn

	failed func()
}

// Read reads from the connection.
func (c *failing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.failed()
	}
	return n, err
}

// Write writes to the connection.
func (c *failing) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.failed()
	}
	return n, err
}

// Close ends the connection and all streams.
func (m *mux) Close() error {
	m.endStreams()
	return m.Session.Close()
}

// endStreams ends the reads and writes of all streams that wait. Their deadlines stay.
func (m *mux) endStreams() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.open {
		_ = s.Stream.SetDeadline(time.Unix(1, 0)) // It never fails.
	}
	m.open = nil
}

// ended reports whether endStreams was called.
func (m *mux) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open == nil
}

// OpenStream opens a stream.
func (m *mux) OpenStream() (*stream, error) { return m.add(m.Session.OpenStream()) }

// AcceptStream waits for a stream of the other side.
func (m *mux) AcceptStream() (*stream, error) { return m.add(m.Session.AcceptStream()) }

func (m *mux) add(opened *yamux.Stream, err error) (*stream, error) {
	if err != nil {
		return nil, err
	}
	s := &stream{opened, m}
	m.mu.Lock()
	over := m.open == nil
	if !over {
		m.open[s] = struct{}{}
	}
	m.mu.Unlock()
	if over {
		opened.Close()
		return nil, yamux.ErrSessionShutdown
	}
	return s, nil
}

// Close closes the stream.
func (s *stream) Close() error {
	s.of.mu.Lock()
	delete(s.of.open, s)
	s.of.mu.Unlock()
	return s.Stream.Close()
}

// Read reads from the stream. After the end of the connection it returns io.EOF, not the
// timeout by which it was ended.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if errors.Is(err, yamux.ErrTimeout) && s.of.ended() {
		err = io.EOF
	}
	return n, err
}

// Write writes to the stream. After the end of the connection the stream is closed.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	if errors.Is(err, yamux.ErrTimeout) && s.of.ended() {
		err = yamux.ErrStreamClosed
	}
	return n, err
}

// SetDeadline sets the deadlines of reads and writes.
func (s *stream) SetDeadline(at time.Time) error { return s.set(s.Stream.SetDeadline, at) }

// SetReadDeadline sets the deadline of reads.
func (s *stream) SetReadDeadline(at time.Time) error { return s.set(s.Stream.SetReadDeadline, at) }

// SetWriteDeadline sets the deadline of writes.
func (s *stream) SetWriteDeadline(at time.Time) error { return s.set(s.Stream.SetWriteDeadline, at) }

func (s *stream) set(set func(time.Time) error, at time.Time) error {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.of.open == nil {
		return nil
	}
	return set(at)
}
