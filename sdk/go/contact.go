package berth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// UnreachableError is the error of a call when no address has ever answered.
type UnreachableError struct {
	Addrs []string
	Err   error // Error of the last try.
}

// Error returns the addresses and why the last one could not be reached.
func (e *UnreachableError) Error() string {
	why := e.Err
	if op, ok := errors.AsType[*net.OpError](e.Err); ok {
		why = op.Err // Without the address once more.
	}
	if errors.Is(e.Err, context.DeadlineExceeded) {
		why = errors.New("no answer")
	}
	return fmt.Sprintf("cannot reach the cluster at %s: %v", strings.Join(e.Addrs, ", "), why)
}

// Unwrap returns the error of the last try.
func (e *UnreachableError) Unwrap() error { return e.Err }

// contact is whether any address has ever answered, and until when that is
// awaited.
type contact struct {
	limit time.Duration // Zero for no limit.
	now   func() time.Time
	made  atomic.Bool

	once  sync.Once
	until time.Time // From the first try on.
}

// deadline returns until when the first contact is awaited. ok is false if there
// is no such limit, or it was made.
func (c *contact) deadline() (until time.Time, ok bool) {
	if c.limit <= 0 || c.made.Load() {
		return time.Time{}, false
	}
	c.once.Do(func() { c.until = c.now().Add(c.limit) })
	return c.until, true
}

// dialTimeout returns how long a connection may take to be made.
func (c *contact) dialTimeout() time.Duration {
	until, ok := c.deadline()
	if !ok {
		return dialTimeout
	}
	return max(min(dialTimeout, until.Sub(c.now())), time.Millisecond)
}

// unreachable returns err as the error of a client that has reached nobody.
func (c *Client) unreachable(err error) error {
	var refusal *Error
	_, waiting := c.contact.deadline()
	if !waiting || err == nil || errors.As(err, &refusal) || errors.Is(err, context.Canceled) {
		return err
	}
	return &UnreachableError{Addrs: c.Addrs(), Err: err}
}

// token is the bearer token, which may be renewed.
type token struct {
	mu   sync.Mutex
	text string
}

func newToken(text string) *token { return &token{text: text} }

func (t *token) get() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

func (t *token) set(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = text
}

// renew gets a token in place of one that was refused with err, and reports
// whether the call may be repeated with it.
func (c *Client) renew(ctx context.Context, used string, err error) (bool, error) {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Status != http.StatusUnauthorized || c.cfg.Renew == nil || used == "" {
		return false, err
	}
	if text := c.token.get(); text != used {
		return true, nil // Another call has renewed it.
	}
	text, failed := c.cfg.Renew(ctx, used)
	if failed != nil {
		return false, failed
	}
	c.token.set(text)
	return true, nil
}
