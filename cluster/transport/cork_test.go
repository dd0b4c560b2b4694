package transport_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"

	"berth/cluster/transport"
)

// writes counts the writes of a connection, and fails from the given one on.
type writes struct {
	net.Conn
	bytes.Buffer
	calls, fails int
}

func (w *writes) Write(p []byte) (int, error) {
	if w.calls++; w.calls == w.fails {
		return 0, io.ErrClosedPipe
	}
	return w.Buffer.Write(p)
}

func (w *writes) Read(p []byte) (int, error) { return w.Buffer.Read(p) }

// TestCorked holds that corked bytes leave in their order and with few writes.
func TestCorked(t *testing.T) {
	raw := &writes{}
	c := transport.NewCorked(raw)
	var want bytes.Buffer
	send := func(n int) {
		t.Helper()
		data := bytes.Repeat([]byte{byte(n)}, n)
		want.Write(data)
		if sent, err := c.Write(data); err != nil || sent != n {
			t.Fatalf("%d of %d bytes: %v", sent, n, err)
		}
	}
	send(10)
	c.Cork()
	for range 20 {
		send(1000)
	}
	if raw.calls != 1 {
		t.Errorf("%d writes while corked", raw.calls)
	}
	if err := c.Uncork(); err != nil || raw.calls != 2 {
		t.Errorf("after uncork %d writes, %v", raw.calls, err)
	}
	c.Cork()
	send(60_000)
	send(10_000) // More than is held.
	send(100_000)
	if err := c.Uncork(); err != nil {
		t.Error(err)
	}
	send(1)
	if !bytes.Equal(raw.Bytes(), want.Bytes()) || raw.calls > 7 {
		t.Errorf("%d of %d bytes in %d writes", raw.Len(), want.Len(), raw.calls)
	}
}

// TestCorkedFails holds that an error of held bytes is not forgotten.
func TestCorkedFails(t *testing.T) {
	raw := &writes{fails: 1}
	c := transport.NewCorked(raw)
	c.Cork()
	if _, err := c.Write([]byte("held")); err != nil {
		t.Fatal(err)
	}
	if err := c.Uncork(); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("uncork: %v", err)
	}
	if _, err := c.Write([]byte("later")); !errors.Is(err, io.ErrClosedPipe) || raw.Len() > 0 {
		t.Errorf("a later write: %v, with %d bytes sent", err, raw.Len())
	}
}
