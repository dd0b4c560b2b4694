package mount

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

// patience is how long a mount waits for its node, which may restart.
type patience struct {
	total  time.Duration // With requests that get no answer: then they end in errors.
	silent time.Duration // With a connection on which nothing moves.
}

// usual is the patience of a mount.
func usual() patience { return patience{total: 2 * time.Minute, silent: 30 * time.Second} }

const maxBackoff = 5 * time.Second

var errOutage = errors.New("storage does not answer")

// outage lets requests be repeated until none has had an answer for a while. From then
// on each is tried once, until one has. It is the limiter of the client's retries.
type outage struct {
	patience patience

	mu sync.Mutex

	since time.Time // Zero while there are answers.
}

// GetToken refuses a retry when patience is over.
func (o *outage) GetToken(context.Context, uint) (func() error, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = now()
	}
	if time.Since(o.since) >= o.patience.total {
		return nil, errOutage
	}
	return func() error { return nil }, nil
}

// AddTokens does nothing: only answers count.
func (o *outage) AddTokens(uint) error { return nil }

// answered ends the outage.
func (o *outage) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since = time.Time{}
}

// watch returns a transport over connections to a socket.
func (o *outage) watch(socket string) http.RoundTripper {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		return moving{c, o.patience.silent}, nil
	}
	return watched{&http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8, IdleConnTimeout: o.patience.silent}, o}
}

// watched tells an outage of answers.
type watched struct {
	http.RoundTripper
	outage *outage
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := w.RoundTripper.RoundTrip(r)
	if err == nil && answer.StatusCode < http.StatusInternalServerError {
		w.outage.answered()
	}
	return answer, err
}

// moving is a connection that ends when nothing moves for a while, in either direction.
type moving struct {
	net.Conn
	limit time.Duration
}

// Read implements net.Conn.
func (m moving) Read(p []byte) (int, error) {
	if err := m.SetDeadline(time.Now().Add(m.limit)); err != nil {
		return 0, err
	}
	return m.Conn.Read(p)
}

// Write implements net.Conn.
func (m moving) Write(p []byte) (int, error) {
	if err := m.SetDeadline(time.Now().Add(m.limit)); err != nil {
		return 0, err
	}
	return m.Conn.Write(p)
}
