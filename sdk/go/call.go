package berth

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Call is one exchange with the API, over however many tries.
type Call struct {
	Method string
	Path   string // Below /api/v2/external, or the whole path when Full.
	Full   bool
	Query  url.Values
	Body   any           // Sent as JSON; nil for none.
	Wait   time.Duration // The node may hold the answer for so long.
	Out    any           // The answer's JSON is decoded into it; nil to ignore it.
	Raw    *[]byte       // The answer as it is, in place of Out.
	Header *http.Header  // The header of the answer, unless nil.

	// NoKey leaves out the Idempotency-Key: the call keeps a secret that a
	// repeat under the same key would not show again.
	NoKey bool
	// Once forbids a repeat when the first try may have been received.
	Once bool

	Payload []byte // Sent as it is, in place of Body.
	Media   string // Media type of Payload; "" for JSON.

	key string
}

// Do makes a call, at one address after the other, until one serves it. Every
// other method uses it. A refusal is an *Error.
func (c *Client) Do(ctx context.Context, in Call) error {
	if err := c.prepare(&in); err != nil {
		return fmt.Errorf("%s %s: %w", in.Method, in.Path, err)
	}
	tries := c.newTries()
	renewed := false
	for {
		used := c.token.get()
		retry, err := c.try(ctx, tries.addr(), &in)
		if err != nil && !renewed {
			if renewed, err = c.renew(ctx, used, err); renewed {
				continue
			}
		}
		if err == nil || !retry || ctx.Err() != nil || !tries.next(ctx, err) {
			return c.unreachable(err)
		}
	}
}

// prepare encodes the body and mints the key that all tries carry.
func (c *Client) prepare(in *Call) error {
	if in.Body != nil {
		payload, err := json.Marshal(in.Body)
		if err != nil {
			return fmt.Errorf("encode body: %w", err)
		}
		in.Payload = payload
	}
	if in.Method == http.MethodGet || in.NoKey {
		return nil
	}
	var raw [16]byte
	if _, err := io.ReadFull(c.cfg.Rand, raw[:]); err != nil {
		return fmt.Errorf("make idempotency key: %w", err)
	}
	in.key = hex.EncodeToString(raw[:])
	return nil
}

// try makes the call at addr once. retry says whether another try is safe and
// may help.
func (c *Client) try(ctx context.Context, addr string, in *Call) (retry bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout+in.Wait)
	defer cancel()
	req, err := c.request(ctx, addr, in)
	if err != nil {
		return false, err
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return !in.Once || neverSent(err), err
	}
	c.contact.made.Store(true)
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return !in.Once, fmt.Errorf("%s %s: read answer: %w", in.Method, in.Path, err)
	case len(body) > maxAnswerBytes:
		return false, fmt.Errorf("%s %s: answer over %d bytes", in.Method, in.Path, maxAnswerBytes)
	case resp.StatusCode != http.StatusOK:
		refusal := errorOf(resp.StatusCode, resp.Header, body)
		return refusal.temporary() && !in.Once, refusal
	}
	if in.Header != nil {
		*in.Header = resp.Header
	}
	switch {
	case in.Raw != nil:
		*in.Raw = body
		return false, nil
	case in.Out == nil:
		return false, nil
	}
	if err := json.Unmarshal(body, in.Out); err != nil {
		return false, fmt.Errorf("%s %s: decode answer: %w", in.Method, in.Path, err)
	}
	return false, nil
}

// request returns the HTTP request for one try.
func (c *Client) request(ctx context.Context, addr string, in *Call) (*http.Request, error) {
	target := addr + in.Path
	if !in.Full {
		target = addr + apiRoot + in.Path
	}
	if len(in.Query) > 0 {
		target += "?" + in.Query.Encode()
	}
	var body io.Reader
	if in.Payload != nil {
		body = bytes.NewReader(in.Payload)
	}
	req, err := http.NewRequestWithContext(ctx, in.Method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if in.Payload != nil {
		req.Header.Set("Content-Type", cmp.Or(in.Media, "application/json"))
	}
	if in.key != "" {
		req.Header.Set("Idempotency-Key", in.key)
	}
	c.identify(req.Header)
	return req, nil
}

// identify adds who calls.
func (c *Client) identify(header http.Header) {
	if token := c.token.get(); token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	if c.cfg.Org != "" {
		header.Set("X-Org-Slug", c.cfg.Org)
	}
}

// neverSent reports whether err says that no connection was made.
func neverSent(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// tries walks over the addresses and, once all of them have failed, waits
// longer and longer before each further round.
type tries struct {
	client *Client
	index  uint32
	failed int // Since the last wait or success.
	delay  time.Duration
	until  time.Time
}

func (c *Client) newTries() *tries {
	return &tries{client: c, index: c.current.Load(), delay: firstDelay, until: c.cfg.Now().Add(c.cfg.RetryFor)}
}

// addr returns the address to try now.
func (t *tries) addr() string {
	return t.client.addrs[int(t.index)%len(t.client.addrs)]
}

// next moves to the next address after err and reports whether to go on.
func (t *tries) next(ctx context.Context, err error) bool {
	following := (t.index + 1) % uint32(len(t.client.addrs))
	t.client.current.CompareAndSwap(t.index, following)
	t.index = following
	t.failed++
	if t.failed < len(t.client.addrs) {
		return true
	}
	t.failed = 0
	pause := t.delay/2 + rand.N(t.delay/2+1)
	if e, ok := errors.AsType[*Error](err); ok {
		pause = max(pause, min(e.RetryAfter, maxDelay))
	}
	t.delay = min(2*t.delay, maxDelay)
	until := t.until
	if first, waiting := t.client.contact.deadline(); waiting && first.Before(until) {
		until = first
	}
	if t.client.cfg.Now().Add(pause).After(until) {
		return false
	}
	return sleep(ctx, pause)
}

// succeeded restarts the time for retries: the next failure is another one.
func (t *tries) succeeded() {
	t.failed, t.delay = 0, firstDelay
	t.until = t.client.cfg.Now().Add(t.client.cfg.RetryFor)
}

// sleep waits for d and reports whether ctx still goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
