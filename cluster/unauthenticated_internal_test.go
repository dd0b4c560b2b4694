package cluster

import (
	"fmt"
	"net"
	"testing"
)

// stubConn is a connection from an address that records its end.
type stubConn struct {
	net.Conn

	from   string
	closed bool
}

func (c *stubConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 1}
}

func (c *stubConn) Close() error {
	c.closed = true
	return nil
}

// TestIdleConnectionsKeepNobodyOut fills the port from one address and then from many.
// The newest connection is open, and the oldest is closed.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	var g unauthenticatedConns
	honest := &stubConn{from: "10.0.0.9"}
	g.add(honest)
	var idle []*stubConn
	for range 3 * maxUnauthenticatedPerAddress {
		idle = append(idle, &stubConn{from: "10.0.0.1"})
		g.add(idle[len(idle)-1])
	}
	if honest.closed {
		t.Error("one address has pushed another one out")
	}
	for i, c := range idle {
		if want := i < 2*maxUnauthenticatedPerAddress; c.closed != want {
			t.Fatalf("connection %d of an address is closed: %t, want %t", i, c.closed, want)
		}
	}
	for i := range maxUnauthenticated {
		g.add(&stubConn{from: fmt.Sprintf("10.1.%d.%d", i/250, i%250)})
	}
	if !honest.closed || g.order.Len() != maxUnauthenticated {
		t.Errorf("%d connections, the oldest closed: %t", g.order.Len(), honest.closed)
	}
}

func TestUnauthenticatedConnLeavesOnce(t *testing.T) {
	var g unauthenticatedConns
	n := g.add(&stubConn{from: "10.0.0.1"})
	g.remove(n)
	g.remove(n)
	if len(g.address) != 0 || g.order.Len() != 0 {
		t.Errorf("%d connections of %d addresses are left", g.order.Len(), len(g.address))
	}
}
