package gateway

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestOneCustomerLeavesPlaces opens connections from one address until it has its share, and
// one from another address.
func TestOneCustomerLeavesPlaces(t *testing.T) {
	c := NewCustomers(8)
	from := func(ip string) net.Conn { return addressed{addr: &net.TCPAddr{IP: net.ParseIP(ip), Port: 1}} }
	var release []func()
	for range 4 { // Half of the places, of which two are its share.
		done, ok := c.Take(from("10.0.0.1"))
		if !ok {
			t.Fatal("refused within the share")
		}
		release = append(release, done)
	}
	if _, ok := c.Take(from("10.0.0.1")); ok {
		t.Error("taken beyond the share")
	}
	if _, ok := c.Take(from("10.0.0.2")); !ok {
		t.Error("another address is refused")
	}
	for _, done := range release[:3] {
		done()
	}
	if _, ok := c.Take(from("10.0.0.1")); !ok {
		t.Error("refused although a connection has ended")
	}
}

// addressed is a connection from an address.
type addressed struct {
	net.Conn

	addr net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.addr }

// TestTricklesAreCut reads a request byte by byte, whose time goes on. The first byte of it, a
// piece of a body and an answer begin another time.
func TestTricklesAreCut(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() { _, _ = client.Write(make([]byte, 3*leastPiece)) }()
	c := &timed{Conn: server, left: time.Second}
	read := func(n int) time.Duration {
		t.Helper()
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		return c.left
	}
	if read(1) != idleConn {
		t.Error("a connection that was idle has less time for its request")
	}
	c.left = time.Second
	for range 20 {
		if read(1) > time.Second {
			t.Fatal("a byte begins another time")
		}
	}
	read(leastPiece)
	if read(1) <= time.Second {
		t.Error("a piece of a body does not begin another time")
	}
	c.left = time.Second
	go func() { _, _ = io.ReadFull(client, make([]byte, 1)) }()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if read(1) <= time.Second {
		t.Error("an answer does not begin another time")
	}
}
