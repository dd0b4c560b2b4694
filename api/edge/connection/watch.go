package connection

import (
	"errors"
	"net"
	"sync"
	"time"
)

// ClientWatch watches the client of a request that another goroutine passes on. It may
// begin only once the whole body has come.
type ClientWatch struct {
	Watch func(gone func()) (stop func()) // Watches the client of the request.
	Gone  func()                          // Called when the client hangs up.

	mu      sync.Mutex
	end     func() // Nil before it has begun.
	stopped bool
}

// Begin begins the watch, unless it was stopped.
func (w *ClientWatch) Begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && w.end == nil {
		w.end = w.Watch(w.Gone)
	}
}

// Stop ends the watch for good.
func (w *ClientWatch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped && w.end != nil {
		w.end()
	}
	w.stopped = true
}

// timeoutError is an error of connections, whose types have different ones for a deadline.
type timeoutError interface {
	error
	Timeout() bool
}

// Watch calls gone when the client hangs up while its answer is made. stop
// ends the watch and reports whether the client sent more. Those bytes are lost,
// so the connection can serve no other request then.
func Watch(conn net.Conn, gone func()) (stop func() (sent bool)) {
	var sent bool
	ended := make(chan struct{})
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		gone()
		close(ended)
	} else {
		go func() {
			defer close(ended)
			var err error
			sent, err = discard(conn)
			if timeout, is := errors.AsType[timeoutError](err); !is || !timeout.Timeout() { // Else stop was called.
				gone()
			}
		}()
	}
	return func() bool {
		if conn.SetReadDeadline(time.Unix(1, 0)) != nil {
			return true // It is closed.
		}
		<-ended
		return sent || conn.SetReadDeadline(time.Time{}) != nil
	}
}

// discard reads from conn until that fails, and reports whether there was
// anything.
func discard(conn net.Conn) (some bool, err error) {
	var buf [64]byte
	for {
		n, err := conn.Read(buf[:])
		some = some || n > 0
		if err != nil {
			return some, err
		}
	}
}
