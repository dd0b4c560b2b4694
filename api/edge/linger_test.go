package edge

import (
	"context"
	"io"
	"net"
	"testing"
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
	l := newLingerListener(ctx, inner)
	l.places = newBudget(2, 2)
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
	held := func() int {
		l.places.mu.Lock()
		defer l.places.mu.Unlock()
		return l.places.used
	}
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
