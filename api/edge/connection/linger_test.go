package connection

import (
	"context"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"berth/api/edge/limit"
)

// TestLingeringIsBounded closes connections whose clients stay: so many linger,
// the others and those of a client that has closed end at once. None is left when
// the server ends.
func TestLingeringIsBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := NewListener(ctx, inner, Limits{All: 8, PerNetwork: 8})
	l.places = limit.NewBudget(2, 2)
	connect := func() (client *net.TCPConn, server net.Conn) {
		t.Helper()
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if server, err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		return conn.(*net.TCPConn), server
	}
	held := l.places.Reserved
	ended, server := connect()
	ended.Close()
	if _, err := io.Copy(io.Discard, server); err != nil {
		t.Fatal(err)
	}
	server.Close()
	if held() != 0 {
		t.Error("a connection lingers though its client has closed")
	}
	for i := range 3 {
		client, server := connect()
		server.Close()
		if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF { //nolint:errorlint // The connection does not wrap its errors.
			t.Errorf("client %d reads %d bytes, %v; want the end", i, n, err)
		}
		if held() != min(i+1, 2) {
			t.Errorf("after %d are closed %d linger", i+1, held())
		}
	}
	cancel()
	if l.waiting.Wait(); held() != 0 {
		t.Errorf("%d linger when the server has ended", held())
	}
}

// fakeListener accepts connections from addresses.
type fakeListener struct {
	net.Listener

	from []string
}

func (l *fakeListener) Accept() (net.Conn, error) {
	if len(l.from) == 0 {
		return nil, net.ErrClosed
	}
	conn := &fakeConn{from: l.from[0]}
	l.from = l.from[1:]
	return conn, nil
}

// fakeConn is a connection from an address.
type fakeConn struct {
	net.Conn

	from string
}

func (c *fakeConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(c.from), 1))
}

func (*fakeConn) CloseWrite() error                { return nil }
func (*fakeConn) Close() error                     { return nil }
func (*fakeConn) SetDeadline(time.Time) error      { return nil }
func (*fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (*fakeConn) SetWriteDeadline(time.Time) error { return nil }
func (*fakeConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (*fakeConn) Write(p []byte) (int, error)      { return len(p), nil }

// TestNetworksShareConnections accepts so many connections of one network of IPv6, from
// whatever address in it, and so many in all, and more once one of them is closed.
func TestNetworksShareConnections(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Nothing lingers.
	inner := &fakeListener{from: []string{"2001:db8::1", "192.0.2.1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1", "192.0.2.2"}}
	l := NewListener(ctx, inner, Limits{All: 4, PerNetwork: 2, Answer: func(bool) []byte { return nil }})
	accept := func() string {
		conn, err := l.Accept()
		if err != nil {
			return err.Error()
		}
		return conn.RemoteAddr().(*net.TCPAddr).IP.String()
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 3 {
		got = append(got, accept())
	}
	if want := []string{"192.0.2.1", "2001:db8::2", "2001:db8:0:1::1"}; !slices.Equal(got, want) {
		t.Errorf("after the first it accepts %v, want %v", got, want)
	}
	if got := accept(); got != net.ErrClosed.Error() {
		t.Errorf("it accepts %s, which is beyond the limit of all", got)
	}
	_ = first.Close()
	_ = first.Close()
	inner.from = []string{"2001:db8::4", "2001:db8::5"}
	if got := accept(); got != "2001:db8::4" {
		t.Errorf("after one was closed it accepts %s", got)
	}
	if got := accept(); got != net.ErrClosed.Error() {
		t.Errorf("a connection that was closed twice counts as two: %s", got)
	}
}
