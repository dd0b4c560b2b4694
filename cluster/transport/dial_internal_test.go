package transport

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"berth/loop"
)

// countedConn is a connection to one of several addresses.
type countedConn struct {
	net.Conn

	at   int
	open *atomic.Int32
}

func (c *countedConn) Close() error {
	c.open.Add(-1)
	return nil
}

// TestDialFirst dials a node with several possible addresses. Silent ones do
// not delay the others, and no connection to them is left.
func TestDialFirst(t *testing.T) {
	const never, patient = time.Hour, 2 * time.Second
	const slow = dialStagger + dialStagger/2
	refused := errors.New("refused")
	type host struct {
		after time.Duration
		err   error
		late  bool // The connection succeeds after the caller has returned.
	}
	for _, test := range []struct {
		name  string
		hosts []host
		first int // The index of the connection's address, -1 for none.
		tried int32
		took  time.Duration
	}{
		{"the first is there", []host{{}, {}}, 0, 1, 0},
		{"the first refuses", []host{{err: refused}, {}}, 1, 2, 0},
		{"the first is silent", []host{{after: never}, {}, {}}, 1, 2, dialStagger},
		{"one is silent, one refuses", []host{{after: never}, {err: refused}, {}}, 2, 3, dialStagger},
		{"the first is slow", []host{{after: slow}, {after: never}}, 0, 2, slow},
		{"the first is there too late", []host{{after: slow, late: true}, {}}, 1, 2, slow},
		{"all refuse", []host{{err: refused}, {err: refused}}, -1, 2, 0},
		{"all are silent", []host{{after: never}, {after: never}}, -1, 2, patient},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patient)
				defer cancel()
				var tried, open atomic.Int32
				dial := func(ctx context.Context, address string) (net.Conn, error) {
					tried.Add(1)
					at, err := strconv.Atoi(address)
					if err != nil {
						return nil, err
					}
					h := test.hosts[at]
					if h.late {
						ctx = context.WithoutCancel(ctx)
					}
					if err := errors.Join(sleep(ctx, h.after), h.err); err != nil {
						return nil, err
					}
					open.Add(1)
					return &countedConn{at: at, open: &open}, nil
				}
				addresses := []string{"0", "1", "2"}[:len(test.hosts)]
				begun := time.Now()
				conn, errs := DialFirst(ctx, addresses, dial)
				took := time.Since(begun)
				if tried.Load() != test.tried || took != test.took {
					t.Errorf("%d are tried and it took %s", tried.Load(), took)
				}
				if conn == nil {
					if test.first >= 0 || slices.Contains(errs, nil) || open.Load() != 0 {
						t.Errorf("no connection, %v, %d open", errs, open.Load())
					}
					return
				}
				if at := conn.(*countedConn).at; at != test.first || open.Load() != 1 {
					t.Errorf("the connection is to %d, and %d are open", at, open.Load())
				}
			})
		})
	}
}

// sleep waits for d or for the end of ctx, and returns ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	if !loop.Sleep(ctx, d) {
		return ctx.Err()
	}
	return nil
}
