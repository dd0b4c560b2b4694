package transport

import (
	"net"
	"sync"
)

// corkSize is how many bytes a corked connection holds back at most.
const corkSize = 64 << 10

// corks has buffers of corked connections. A connection has one only while it is corked.
var corks = sync.Pool{New: func() any { //nolint:gochecknoglobals // Memory that all connections share.
	buf := make([]byte, 0, corkSize)
	return &buf
}}

// Corked is a connection that sends the bytes written between Cork and Uncork with as few
// system calls as possible: TLS makes one for each of its records, of at most 16 KiB.
// Cork and Uncork are called by one goroutine, all other methods by any.
type Corked struct {
	net.Conn

	mu sync.Mutex

	held *[]byte // Nil unless corked.
	err  error   // Error of a flush; all later writes fail with it.
}

// NewCorked returns conn, not corked. The system calls of a TCP connection are brief from now on.
func NewCorked(conn net.Conn) *Corked { return &Corked{Conn: newBrief(conn)} }

// NetConn returns the connection below.
func (c *Corked) NetConn() net.Conn { return c.Conn }

// Cork holds back all writes until Uncork.
func (c *Corked) Cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = corks.Get().(*[]byte)
}

// Uncork sends the bytes that were held back.
func (c *Corked) Uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held
	if held == nil {
		return c.err
	}
	c.flush()
	c.held = nil
	corks.Put(held)
	return c.err
}

// flush sends the held bytes. The caller holds the lock, so that bytes stay in order.
func (c *Corked) flush() {
	if c.err == nil && len(*c.held) > 0 {
		_, c.err = c.Conn.Write(*c.held)
	}
	*c.held = (*c.held)[:0]
}

// Write sends data, or holds it back.
func (c *Corked) Write(data []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return 0, c.err
	case c.held == nil:
		return c.Conn.Write(data)
	}
	if len(*c.held)+len(data) > corkSize {
		if c.flush(); c.err != nil {
			return 0, c.err
		}
	}
	if len(data) > corkSize {
		return c.Conn.Write(data)
	}
	*c.held = append(*c.held, data...)
	return len(data), nil
}
