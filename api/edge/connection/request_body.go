package connection

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// RequestBody is a body on its way to a replica. After its end, and after Close, it reads
// nothing more from the client's connection.
type RequestBody struct {
	From  io.Reader
	Conn  net.Conn
	Pause time.Duration // The longest wait for the next piece.
	Whole func()        // Called once the client has sent all of it; nil for nothing.

	// Each piece of so many bytes has to come within a time; 0 for no such limit.
	Piece  int
	Within time.Duration
	until  time.Time // For the piece that is read; the zero time before the first one.
	got    int       // Bytes of it.

	ended atomic.Bool // It was read to its end.

	mu     sync.Mutex
	closed bool
}

// None reports whether the request has no body that is read as it comes.
func (b *RequestBody) None() bool { return b.From == nil }

// Read implements io.Reader.
func (b *RequestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.From == nil {
		return 0, io.ErrClosedPipe
	}
	if b.ended.Load() {
		return 0, io.EOF
	}
	if err := b.Conn.SetReadDeadline(b.deadline(time.Now())); err != nil {
		return 0, err
	}
	n, err := b.From.Read(p)
	b.got += n
	if errors.Is(err, io.EOF) {
		if b.ended.Store(true); b.Whole != nil {
			b.Whole()
		}
	}
	return n, err
}

// deadline returns until when the next bytes have to come.
func (b *RequestBody) deadline(now time.Time) time.Time {
	next := now.Add(b.Pause)
	if b.Piece <= 0 {
		return next
	}
	if b.until.IsZero() {
		b.until = now.Add(b.Within)
	}
	for ; b.got >= b.Piece; b.got -= b.Piece {
		b.until = b.until.Add(b.Within)
	}
	if b.until.Before(next) {
		return b.until
	}
	return next
}

// Close makes later reads fail, and one that waits. After the end of the body it does
// nothing: its deadline would end the watch of the client.
func (b *RequestBody) Close() error {
	if b.From == nil || b.ended.Load() {
		return nil
	}
	_ = b.Conn.SetReadDeadline(time.Unix(1, 0))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	return b.Conn.SetReadDeadline(time.Now().Add(b.Pause)) // For what the server drains of it.
}
