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
	for range 2 {
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
	release[0]()
	if _, ok := c.Take(from("10.0.0.1")); !ok {
		t.Error("refused although a connection has ended")
	}
}

// addressed is a connection from an address, with a record of its deadlines.
type addressed struct {
	net.Conn

	addr  net.Addr
	until *time.Time
}

func (a addressed) RemoteAddr() net.Addr { return a.addr }

func (a addressed) SetReadDeadline(at time.Time) error {
	*a.until = at
	return nil
}

func (a addressed) SetWriteDeadline(time.Time) error { return nil }

// TestTricklesAreCut reads a request byte by byte: its deadline stays. An answer, and a piece of a
// body, move it.
func TestTricklesAreCut(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() { _, _ = client.Write(make([]byte, 3*leastPiece)) }()
	var until time.Time
	c := &timed{Conn: addressed{Conn: server, until: &until}}
	read := func(n int) time.Time {
		t.Helper()
		if _, err := io.ReadFull(c, make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		return until
	}
	first := read(1)
	for range 20 {
		if read(1) != first {
			t.Fatal("a byte moves the deadline")
		}
	}
	read(leastPiece)
	second := read(1)
	if !second.After(first) {
		t.Error("a piece of a body does not move the deadline")
	}
	go func() { _, _ = io.ReadFull(client, make([]byte, 1)) }()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if !read(1).After(second) {
		t.Error("an answer does not move the deadline")
	}
}
