package client

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

	"berth/loop"
)

// call is one exchange with the API, over however many tries.
type call struct {
	method string
	path   string // Below apiRoot, or from "/" on when full.
	full   bool
	query  url.Values
	body   any           // Sent as JSON; nil for none.
	wait   time.Duration // The node may hold the answer for so long.
	out    any           // The answer's JSON is decoded into it; nil to ignore it.
	raw    *[]byte       // The answer as it is, in place of out.
	header *http.Header  // The header of the answer, unless nil.

	// noKey leaves out the Idempotency-Key: the call keeps a secret that a
	// repeat under the same key would not show again.
	noKey bool
	// once forbids a repeat when the first try may have been received.
	once bool

	payload []byte // Of body, or sent as it is.
	media   string // Of payload; "" for JSON.
	key     string
}

// do makes the call, at one address after the other, until one serves it.
func (c *Client) do(ctx context.Context, in call) error {
	if err := c.prepare(&in); err != nil {
		return fmt.Errorf("%s %s: %w", in.method, in.path, err)
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
func (c *Client) prepare(in *call) error {
	if in.body != nil {
		payload, err := json.Marshal(in.body)
		if err != nil {
			return fmt.Errorf("encode body: %w", err)
		}
		in.payload = payload
	}
	if in.method == http.MethodGet || in.noKey {
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
func (c *Client) try(ctx context.Context, addr string, in *call) (retry bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout+in.wait)
	defer cancel()
	req, err := c.request(ctx, addr, in)
	if err != nil {
		return false, err
	}
	resp, err := c.cfg.HTTP.Do(req)
	if err != nil {
		return !in.once || neverSent(err), err
	}
	c.contact.made.Store(true)
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return !in.once, fmt.Errorf("%s %s: read answer: %w", in.method, in.path, err)
	case len(body) > maxAnswerBytes:
		return false, fmt.Errorf("%s %s: answer over %d bytes", in.method, in.path, maxAnswerBytes)
	case resp.StatusCode != http.StatusOK:
		refusal := errorOf(resp.StatusCode, resp.Header, body)
		return refusal.temporary() && !in.once, refusal
	}
	if in.header != nil {
		*in.header = resp.Header
	}
	switch {
	case in.raw != nil:
		*in.raw = body
		return false, nil
	case in.out == nil:
		return false, nil
	}
	if err := json.Unmarshal(body, in.out); err != nil {
		return false, fmt.Errorf("%s %s: decode answer: %w", in.method, in.path, err)
	}
	return false, nil
}

// request returns the HTTP request for one try.
func (c *Client) request(ctx context.Context, addr string, in *call) (*http.Request, error) {
	target := addr + in.path
	if !in.full {
		target = addr + apiRoot + in.path
	}
	if len(in.query) > 0 {
		target += "?" + in.query.Encode()
	}
	var body io.Reader
	if in.payload != nil {
		body = bytes.NewReader(in.payload)
	}
	req, err := http.NewRequestWithContext(ctx, in.method, target, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	if in.payload != nil {
		req.Header.Set("Content-Type", cmp.Or(in.media, "application/json"))
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
	return loop.Sleep(ctx, pause)
}

// succeeded restarts the time for retries: the next failure is another one.
func (t *tries) succeeded() {
	t.failed, t.delay = 0, firstDelay
	t.until = t.client.cfg.Now().Add(t.client.cfg.RetryFor)
}
