package cluster

import (
	"container/list"
	"net"
	"sync"
)

// Limits of guests.
const (
	maxGuests           = 256
	maxGuestsPerAddress = 64 // From one address.
)

// guests are the connections without a certificate: those in their handshake, and
// those that may only join. A new one always gets in and the oldest leaves, so that
// connections that do nothing keep nobody out.
type guests struct {
	mu      sync.Mutex
	order   list.List // Of *guest, the oldest first.
	address map[string]int
}

// guest is one connection.
type guest struct {
	conn net.Conn
	host string
	at   *list.Element // Nil once it has left.
}

// add admits conn. It closes the oldest guest of the same address if that has too
// many, or the oldest of all.
func (g *guests) add(conn net.Conn) *guest {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.address == nil {
		g.address = make(map[string]int)
	}
	n := &guest{conn: conn, host: hostOf(conn)}
	for at := g.order.Front(); at != nil && g.address[n.host] >= maxGuestsPerAddress; {
		next := at.Next()
		if old := at.Value.(*guest); old.host == n.host {
			g.evict(old)
		}
		at = next
	}
	if g.order.Len() >= maxGuests {
		g.evict(g.order.Front().Value.(*guest))
	}
	n.at = g.order.PushBack(n)
	g.address[n.host]++
	return n
}

// remove forgets a guest that has a certificate or has left.
func (g *guests) remove(n *guest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(n)
}

func (g *guests) evict(n *guest) {
	n.conn.Close()
	g.drop(n)
}

func (g *guests) drop(n *guest) {
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
