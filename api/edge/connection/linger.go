package connection

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"berth/api/auth"
	"berth/api/edge/limit"
)

// Limits of connections that the server has closed and reads from still.
const (
	lingerTime   = 3 * time.Second
	lingerBytes  = 9 << 20 // The largest body by default, and what frames it.
	maxLingering = 256
	lingerShare  = 8 // The part of them that one address may have: an eighth.
	lingerBuffer = 16 << 10
)

// Listener accepts connections that linger: closing one with unread bytes
// resets it, and a client that still sends a body which was refused might never
// read why.
type Listener struct {
	net.Listener

	limits   Limits
	places   *limit.Budget
	open     *limit.Budget // Open connections of customers.
	refusing *limit.Budget
	ctx      context.Context //nolint:containedctx // Lives for one call of Serve; nothing lingers after it.
	waiting  sync.WaitGroup
}

// NewListener returns a listener that refuses connections beyond limits.
func NewListener(ctx context.Context, l net.Listener, limits Limits) *Listener {
	return &Listener{
		Listener: l, ctx: ctx, limits: limits,
		places:   limit.NewBudget(maxLingering, maxLingering/lingerShare),
		open:     limit.NewBudget(limits.All, limits.PerNetwork),
		refusing: limit.NewBudget(maxRefusing, maxRefusing/refusalShare),
	}
}

// Wait waits until no connection lingers or is refused.
func (l *Listener) Wait() { l.waiting.Wait() }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		half, ok := conn.(halfConn)
		if !ok {
			return conn, nil
		}
		network := networkOf(conn.RemoteAddr())
		if network == "" || l.open.Take(network, 1) {
			return &lingerConn{halfConn: half, listener: l, network: network}, nil
		}
		l.refuse(half, network)
	}
}

// networkOf names the customer behind a connection, "" where it has no address.
func networkOf(client net.Addr) string {
	tcp, ok := client.(*net.TCPAddr)
	if !ok {
		return ""
	}
	return auth.Customer("", tcp.AddrPort().Addr())
}

// halfConn is a connection of which one direction can be closed.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// lingerConn is a connection that lingers when it is closed.
type lingerConn struct {
	halfConn

	listener *Listener
	network  string      // For which it is counted; "" for none.
	over     atomic.Bool // Nothing more comes from the client, or nothing reaches it.
	last     atomic.Bool // No request is read after the one that is answered.
	closed   atomic.Bool
}

// LastRequest returns the read deadline by which a connection learns that no request is
// read after the one that is answered. Deadlines pass through what TLS and fasthttp wrap
// a connection in.
func LastRequest() time.Time { return time.Unix(1, 1) }

// SetReadDeadline implements net.Conn.
func (c *lingerConn) SetReadDeadline(t time.Time) error {
	if t.Equal(LastRequest()) {
		c.last.Store(true)
	}
	return c.halfConn.SetReadDeadline(t)
}

// Read implements net.Conn.
func (c *lingerConn) Read(p []byte) (int, error) {
	if c.last.Load() {
		return 0, io.EOF
	}
	n, err := c.halfConn.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.over.Store(true)
	}
	return n, err
}

// Write implements net.Conn.
func (c *lingerConn) Write(p []byte) (int, error) {
	n, err := c.halfConn.Write(p)
	if err != nil {
		c.over.Store(true)
	}
	return n, err
}

// Close ends the stream to the client. Bytes that the client still sends are dropped
// for a while, in the background.
func (c *lingerConn) Close() error {
	l := c.listener
	again := c.closed.Swap(true)
	if !again && c.network != "" {
		l.open.Give(c.network, 1)
	}
	if again || c.over.Load() || l.ctx.Err() != nil {
		return c.halfConn.Close()
	}
	owner := c.network // One owner has all connections without an address.
	if !l.places.Take(owner, 1) {
		return c.halfConn.Close()
	}
	l.waiting.Go(func() {
		defer l.places.Give(owner, 1)
		c.linger(l.ctx)
	})
	return nil
}

// linger closes the connection when the client has, within the limits.
func (c *lingerConn) linger(ctx context.Context) {
	defer c.halfConn.Close()
	if c.CloseWrite() != nil || c.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { c.halfConn.Close() })()
	rest := struct{ io.Reader }{io.LimitReader(c.halfConn, lingerBytes)}
	_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, rest, make([]byte, lingerBuffer)) // The rest is unread.
}
