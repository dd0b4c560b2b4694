package rpc

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// mux is one end of a connection with many streams. Once a session of yamux is shut down,
// each of its reads that waits looks again and again whether its stream is closed. Thousands
// of them leave the goroutine that closes the streams no time: the node would answer nobody
// for many seconds after the end of one connection. So a mux ends the reads by a deadline
// before the session shuts down: when its connection fails, and when it is closed.
type mux struct {
	*yamux.Session

	mu   sync.Mutex
	open map[*yamux.Stream]struct{} // Nil once the reads are ended.
}

// newMux returns the end of conn that start makes a session of.
func newMux(conn net.Conn, start func(net.Conn) (*yamux.Session, error)) (m *mux, err error) {
	m = &mux{open: make(map[*yamux.Stream]struct{})}
	if m.Session, err = start(&failing{Conn: conn, failed: m.endReads}); err != nil {
		return nil, err
	}
	go func() {
		<-m.CloseChan() // The other side may not have answered in time.
		m.endReads()
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
	m.endReads()
	return m.Session.Close()
}

// endReads ends the reads of all streams that wait.
func (m *mux) endReads() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for stream := range m.open {
		_ = stream.SetReadDeadline(time.Unix(1, 0)) // It never fails.
	}
	m.open = nil
}

// OpenStream opens a stream, which end forgets.
func (m *mux) OpenStream() (*yamux.Stream, error) { return m.add(m.Session.OpenStream()) }

// AcceptStream waits for a stream of the other side, which end forgets.
func (m *mux) AcceptStream() (*yamux.Stream, error) { return m.add(m.Session.AcceptStream()) }

func (m *mux) add(stream *yamux.Stream, err error) (*yamux.Stream, error) {
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open == nil {
		stream.Close()
		return nil, yamux.ErrSessionShutdown
	}
	m.open[stream] = struct{}{}
	return stream, nil
}

// end closes a stream.
func (m *mux) end(stream *yamux.Stream) error {
	m.mu.Lock()
	delete(m.open, stream)
	m.mu.Unlock()
	return stream.Close()
}
