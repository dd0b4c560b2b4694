package rpc

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// closing is a connection that notes whether reads of streams were waiting when it was
// closed, which yamux does once it has shut down the session.
type closing struct {
	net.Conn
	m       *mux
	waiting chan bool
}

func (c *closing) Close() error {
	if c.m != nil {
		c.m.mu.Lock()
		select {
		case c.waiting <- c.m.open != nil:
		default:
		}
		c.m.mu.Unlock()
	}
	return c.Conn.Close()
}

// TestReadsEndBeforeTheSession ends a connection in each way while a stream is read.
func TestReadsEndBeforeTheSession(t *testing.T) {
	for name, end := range map[string]func(m *mux, other net.Conn){
		"closed":         func(m *mux, _ net.Conn) { m.Close() },
		"closed by peer": func(_ *mux, other net.Conn) { other.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			go io.Copy(io.Discard, far) //nolint:errcheck // Until the end.
			conn := &closing{Conn: near, waiting: make(chan bool, 1)}
			m, err := newMux(conn, func(conn net.Conn) (*yamux.Session, error) {
				return yamux.Client(conn, muxConfig(slog.New(slog.DiscardHandler)))
			})
			if err != nil {
				t.Fatal(err)
			}
			conn.m = m
			stream, err := m.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := stream.Read(make([]byte, 1))
				ended <- err
			}()
			wrote := make(chan error, 1)
			go func() {
				_, err := stream.Write(make([]byte, 1<<20)) // More than its window: it waits.
				wrote <- err
			}()
			end(m, far)
			if err := <-wrote; err == nil || errors.Is(err, yamux.ErrTimeout) {
				t.Errorf("the write ends by %v", err)
			}
			if err := <-ended; !errors.Is(err, io.EOF) { // No timeout, by which callers of a stream know their own.
				t.Errorf("the read ends by %v", err)
			}
			if <-conn.waiting {
				t.Error("the session was shut down while reads waited")
			}
			if err := stream.SetReadDeadline(time.Time{}); err != nil {
				t.Error(err)
			}
			if _, err := stream.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a later read ends by %v", err)
			}
			if _, err := m.OpenStream(); err == nil {
				t.Error("a stream is opened after the end")
			}
		})
	}
}
