package faults

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"berth/api/client"
	"berth/bench/faults/world"
	"berth/loop"
)

// tryLimit is the timeout of one try.
const tryLimit = 3 * time.Second

// noSpace is the answer code for a full disk. If an earlier try of the same
// request may have had an effect, the code differs.
const noSpace = "no_space"

// outcome is a client's knowledge about a try.
type outcome uint8

const (
	done     outcome = iota // It took effect.
	refused                 // The answer reports no effect.
	unknown                 // It may have, or may still get, an effect.
	unsent                  // Nobody received it.
	full                    // The answer reports a full disk: no effect, and a retry is allowed.
	outcomes = iota
)

// outcomeOf classifies the error of a change. sent reports whether any byte of
// the request was sent.
func outcomeOf(err error, sent bool) outcome {
	if err == nil {
		return done
	}
	if answer, ok := errors.AsType[*client.Error](err); ok {
		switch {
		case answer.Status == http.StatusInsufficientStorage && answer.Code == noSpace:
			return full
		case answer.Status >= http.StatusInternalServerError, answer.Status == http.StatusRequestTimeout:
			return unknown
		case answer.Status == http.StatusConflict && answer.Code == "idempotency_in_flight":
			return unsent // Another try is in flight; this one has no effect.
		case answer.Status == http.StatusTooManyRequests:
			return unsent
		}
		return refused
	}
	if !sent {
		return unsent
	}
	return unknown
}

// traced returns a context whose requests record whether anything was sent. The
// error alone does not show it. The transport resends a request with an
// Idempotency-Key when its connection breaks. The second try may then fail
// because nobody listens.
func traced(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}
	return httptrace.WithClientTrace(ctx, trace), sent
}

// caller is one client. It makes one try at a time, each at a random node.
type caller struct {
	id   int
	rng  *rand.Rand
	keys *keys

	session *session
	nodes   []*client.Client // One per node, with the root token.
	op      uint64
	at      string // The node of the last try.
}

// keys generates idempotency keys: the key stays the same until the next
// operation.
type keys struct{ now [sha256.Size]byte }

func (k *keys) Read(p []byte) (int, error) { return copy(p, k.now[:]), nil }

// newCaller returns the client with the given number.
func (s *session) newCaller(id int) (*caller, error) {
	c := &caller{id: id, rng: s.random("client", uint64(id)), keys: &keys{}, session: s}
	c.next()
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 10 * time.Second,
	}
	s.onClose(transport.CloseIdleConnections)
	for _, n := range s.world.Nodes {
		one, err := client.New(client.Config{
			Addrs: []string{n.URL()}, Token: s.world.RootToken, RetryFor: -1, Rand: c.keys,
			HTTP: &http.Client{Transport: transport},
		})
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, one)
	}
	return c, nil
}

// next begins another operation: subsequent tries carry another key. It returns
// the operation's name.
func (c *caller) next() string {
	c.op++
	seed := binary.BigEndian.AppendUint64(nil, c.session.cfg.Seed)
	seed = binary.BigEndian.AppendUint64(seed, uint64(c.id))
	c.keys.now = sha256.Sum256(binary.BigEndian.AppendUint64(seed, c.op))
	return hex.EncodeToString(c.keys.now[:8])
}

// any returns a client of a random node with a token; "" is the root token.
func (c *caller) any(token string) *client.Client {
	i := c.rng.IntN(len(c.nodes))
	one := c.nodes[i]
	c.at = c.session.world.Nodes[i].Name
	if token == "" {
		return one
	}
	return one.WithToken(token)
}

// relieve makes one try of a change that does not enlarge the state. A full
// disk is not a reason to refuse it.
func (c *caller) relieve(
	ctx context.Context, workload, what string, change func(ctx context.Context) error,
) (outcome, error) {
	o, err := c.try(ctx, workload, change)
	if o == full {
		c.session.unexpected(workload, what, err)
	}
	return o, err
}

// try makes one try of a change and counts it.
func (c *caller) try(ctx context.Context, workload string, change func(ctx context.Context) error) (outcome, error) {
	called := c.session.now()
	one, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	one, sent := traced(one)
	err := change(one)
	o := outcomeOf(err, sent.Load())
	c.session.tally.count(workload, o)
	if o == done || o == unknown {
		c.session.tally.noteWrite(wrote{c.at, called, c.session.now()})
	}
	if o == done {
		c.session.tally.accepted(called, c.session.now())
	}
	return o, err
}

// read makes one try to read something and counts it.
func (c *caller) read(ctx context.Context, workload string, read func(ctx context.Context) error) error {
	one, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	err := read(one)
	o := outcomeOf(err, true)
	switch o {
	case unknown:
		o = unsent // A failed read shows nothing and changes nothing.
	case full:
		c.session.unexpected(workload, "read", err) // Reads need no disk space.
	case done, refused, unsent:
	}
	c.session.tally.count(workload, o)
	return err
}

// pause waits for about d, with random jitter, and reports whether to go on.
func (c *caller) pause(ctx context.Context, d time.Duration) bool {
	return loop.Sleep(ctx, d/2+time.Duration(c.rng.Int64N(int64(d))))
}

// patient returns a client for all nodes that retries until a node answers. It
// serves requests that a run needs and does not check.
func patient(w *world.World, token string) (*client.Client, error) {
	addrs := make([]string, len(w.Nodes))
	for i, n := range w.Nodes {
		addrs[i] = n.URL()
	}
	return client.New(client.Config{Addrs: addrs, Token: token, RetryFor: time.Minute})
}
