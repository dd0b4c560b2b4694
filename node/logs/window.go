package logs

import (
	"context"
	"encoding/binary"
	"sync"
)

// The bytes of an answer that were sent and that its receiver has not read yet. They are in
// the receiver's memory, where a connection would take much more of a client that does not
// read. Few senders at a time may have a large window.
const (
	smallWindow  = 8 << 10
	largeWindow  = 64 << 10
	largeWindows = 32
	leastPiece   = 2 << 10         // Smaller pieces are sent only if they are all.
	ackAfter     = smallWindow / 2 // A receiver reports so many bytes before it reads on.
	ackBytes     = 4
)

// Window bounds the bytes in flight to a receiver. Its methods may be called concurrently.
type Window struct {
	memory *memory // Nil before Serve uses the window.

	mu sync.Mutex

	flying  int
	large   bool // It has a token of memory.windows.
	partial []byte
	changed chan struct{} // Holds a value if flying has shrunk.
}

// NewWindow returns a Window for the answer to one request.
func NewWindow() *Window { return &Window{changed: make(chan struct{}, 1)} }

// Received takes what the receiver sends: how many bytes it has read since it last said so.
func (w *Window) Received(p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = append(w.partial, p...)
	read := 0
	for len(w.partial) >= ackBytes {
		read += int(binary.BigEndian.Uint32(w.partial))
		w.partial = w.partial[:copy(w.partial, w.partial[ackBytes:])]
	}
	w.flying = max(w.flying-read, 0)
	if w.large && w.flying <= smallWindow {
		w.shrink()
	}
	select {
	case w.changed <- struct{}{}:
	default: // The sender has not seen the value before.
	}
}

// take waits until bytes may be sent, at most want, and returns how many.
func (w *Window) take(ctx context.Context, want int) (int, error) {
	for {
		if n := w.try(want); n > 0 {
			return n, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-w.changed:
		}
	}
}

func (w *Window) try(want int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.large && w.flying+want > smallWindow {
		select {
		case w.memory.windows <- struct{}{}:
			w.large = true
		default:
		}
	}
	limit := smallWindow
	if w.large {
		limit = largeWindow
	}
	n := min(want, limit-w.flying)
	if n < min(want, leastPiece) {
		return 0
	}
	w.flying += n
	return n
}

// shrink gives the token back. The caller holds the lock.
func (w *Window) shrink() {
	<-w.memory.windows
	w.large = false
}

// close ends the use of the window.
func (w *Window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.large {
		w.shrink()
	}
}
