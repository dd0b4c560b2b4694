package connection

import (
	"errors"
	"net"
	"os"
	"sync"
)

// Awaited is a connection whose end can be waited for.
type Awaited struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// NewAwaited returns conn with an end that can be waited for.
func NewAwaited(conn net.Conn) *Awaited {
	return &Awaited{Conn: conn, closed: make(chan struct{})}
}

// Wait waits until the connection is closed on this side.
func (c *Awaited) Wait() { <-c.closed }

// Read reads from the connection. The watch of a client distinguishes the end of its
// own deadline from a hang-up. Streams between nodes report the deadline by an error
// of their own.
func (c *Awaited) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}

// Close implements net.Conn.
func (c *Awaited) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		close(c.closed)
	})
	return err
}
