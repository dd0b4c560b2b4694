package cluster

import (
	"container/list"
	"net"
	"sync"
)

// Limits of unauthenticated connections.
const (
	maxUnauthenticated           = 256
	maxUnauthenticatedPerAddress = 64 // From one address.
)

// unauthenticatedConns are the connections without a certificate: those in their
// handshake, and those that may only join. A new one is always admitted and the oldest
// is closed, so that idle connections keep nobody out.
type unauthenticatedConns struct {
	mu      sync.Mutex
	order   list.List // Elements are *unauthenticatedConn, the oldest first.
	address map[string]int
}

// unauthenticatedConn is one connection.
type unauthenticatedConn struct {
	conn net.Conn
	host string
	at   *list.Element // Nil once it is closed or authenticated.
}

// add admits conn. It closes the oldest connection from the same address if that has too
// many, or the oldest of all.
func (g *unauthenticatedConns) add(conn net.Conn) *unauthenticatedConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.address == nil {
		g.address = make(map[string]int)
	}
	n := &unauthenticatedConn{conn: conn, host: hostOf(conn)}
	for at := g.order.Front(); at != nil && g.address[n.host] >= maxUnauthenticatedPerAddress; {
		next := at.Next()
		if old := at.Value.(*unauthenticatedConn); old.host == n.host {
			g.evict(old)
		}
		at = next
	}
	if g.order.Len() >= maxUnauthenticated {
		g.evict(g.order.Front().Value.(*unauthenticatedConn))
	}
	n.at = g.order.PushBack(n)
	g.address[n.host]++
	return n
}

// remove forgets a connection that has shown a certificate or has ended.
func (g *unauthenticatedConns) remove(n *unauthenticatedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(n)
}

func (g *unauthenticatedConns) evict(n *unauthenticatedConn) {
	n.conn.Close()
	g.drop(n)
}

func (g *unauthenticatedConns) drop(n *unauthenticatedConn) {
	if n.at == nil {
		return
	}
	g.order.Remove(n.at)
	n.at = nil
	if g.address[n.host]--; g.address[n.host] == 0 {
		delete(g.address, n.host)
	}
}

// hostOf returns the address of the other side, without its port.
func hostOf(conn net.Conn) string {
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil {
		return conn.RemoteAddr().String()
	}
	return host
}
