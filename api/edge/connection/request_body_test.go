package connection

import (
	"bytes"
	"net"
	"testing"
	"time"
)

// lastDeadline is a connection that keeps the last deadline of its reads.
type lastDeadline struct {
	net.Conn
	last time.Time
}

func (d *lastDeadline) SetReadDeadline(t time.Time) error {
	d.last = t
	return nil
}

// TestTrickledBodyHasADeadline reads a body a byte at a time: the deadline stays where it
// was until a piece has come, and then moves by the time for one.
func TestTrickledBodyHasADeadline(t *testing.T) {
	const piece, within = 10, time.Hour
	conn := new(lastDeadline)
	b := &RequestBody{
		From: bytes.NewReader(make([]byte, 100)), Conn: conn, Pause: 10 * within, Piece: piece, Within: within,
	}
	read := func() time.Time {
		t.Helper()
		if n, err := b.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		return conn.last
	}
	first := read()
	for range piece - 1 {
		if got := read(); !got.Equal(first) {
			t.Fatalf("the deadline moves by %s within a piece", got.Sub(first))
		}
	}
	if got := read(); !got.Equal(first.Add(within)) {
		t.Errorf("after a piece it moves by %s, want %s", got.Sub(first), within)
	}
	b = &RequestBody{From: bytes.NewReader(make([]byte, 100)), Conn: conn, Pause: within}
	if first := read(); !read().After(first) {
		t.Error("a body to a service has a deadline for the whole")
	}
}
