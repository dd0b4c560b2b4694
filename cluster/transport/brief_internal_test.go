package transport

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime/trace"
	"sync"
	"syscall"
	"testing"
	"time"
)

// briefPair returns both ends of a TCP connection, the first one brief.
func briefPair(t *testing.T) (brief, other net.Conn) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if other, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	if brief = newBrief(raw); brief == raw {
		t.Fatal("the connection is as it was")
	}
	t.Cleanup(func() { brief.Close(); other.Close() })
	return brief, other
}

// TestBrief holds that bytes pass both ways in their order, in writes that exceed what a
// socket holds.
func TestBrief(t *testing.T) {
	brief, other := briefPair(t)
	data := make([]byte, 12<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // It never fails.
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{brief, other}, {other, brief}} {
		both.Go(func() {
			n, err := way[0].Write(data)
			if err != nil || n != len(data) {
				t.Errorf("%d of %d bytes written: %v", n, len(data), err)
			}
		})
		both.Go(func() {
			got := make([]byte, len(data))
			if _, err := io.ReadFull(way[1], got); err != nil || !bytes.Equal(got, data) {
				t.Errorf("the bytes that were read differ, %v", err)
			}
		})
	}
	both.Wait()
	if n, err := brief.Read(nil); n != 0 || err != nil {
		t.Errorf("read of nothing: %d, %v", n, err)
	}
}

// TestBriefErrors holds that errors are those of a usual connection.
func TestBriefErrors(t *testing.T) {
	t.Run("deadline", func(t *testing.T) {
		brief, _ := briefPair(t)
		_ = brief.SetDeadline(time.Unix(1, 0))
		for name, use := range map[string]func([]byte) (int, error){"read": brief.Read, "write": brief.Write} {
			_, err := use([]byte("x"))
			if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("end", func(t *testing.T) {
		brief, other := briefPair(t)
		other.Close()
		if _, err := brief.Read(make([]byte, 1)); err != io.EOF { //nolint:errorlint // As io.Reader has it.
			t.Errorf("read: %v", err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		brief, other := briefPair(t)
		_ = other.(*net.TCPConn).SetLinger(0)
		other.Close()
		_, err := brief.Read(make([]byte, 1))
		if _, ok := errors.AsType[*net.OpError](err); !ok || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		if _, err := brief.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		brief, _ := briefPair(t)
		waits := make(chan error)
		go func() {
			_, err := brief.Read(make([]byte, 1))
			waits <- err
		}()
		brief.Close()
		if err := <-waits; !errors.Is(err, net.ErrClosed) {
			t.Errorf("read: %v", err)
		}
		if _, err := brief.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	})
}

// TestBriefCalls holds that the runtime hears of no system call: its trace names none. That of
// a usual connection does.
func TestBriefCalls(t *testing.T) {
	brief, other := briefPair(t)
	heard := func(from, to net.Conn) bool {
		var events bytes.Buffer
		if err := trace.Start(&events); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if _, err := from.Write([]byte("x")); err != nil {
				t.Error(err)
			}
			if _, err := to.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		}
		trace.Stop()
		return bytes.Contains(events.Bytes(), []byte("syscall.write")) ||
			bytes.Contains(events.Bytes(), []byte("syscall.read"))
	}
	if !heard(brief.(*briefConn).TCPConn, other) {
		t.Error("the runtime hears of no call of a usual connection")
	}
	tries := 0
	for heard(brief, newBrief(other)) { // Something else in this process may make a call.
		if tries++; tries == 10 {
			t.Fatal("the runtime hears of brief calls")
		}
	}
}

// TestCorkedIsBrief holds that connections between nodes are brief.
func TestCorkedIsBrief(t *testing.T) {
	brief, _ := briefPair(t)
	if got, ok := NewCorked(brief.(*briefConn).TCPConn).NetConn().(*briefConn); !ok {
		t.Errorf("a connection is %T", got)
	}
}
