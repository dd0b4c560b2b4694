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

// tryLimit is how long a client waits for the answer to one try.
const tryLimit = 3 * time.Second

// noSpace is the code of the answer that a disk is full. Where an earlier try
// of the same request may have had an effect, the answer is another one.
const noSpace = "no_space"

// outcome is what a client knows of a try.
type outcome uint8

const (
	done     outcome = iota // It took effect.
	refused                 // It was answered that it has none.
	unknown                 // It may have, or may still get, an effect.
	unsent                  // Nobody received it.
	full                    // It was answered that a disk is full: it has no effect, and may be asked for again.
	outcomes = iota
)

// outcomeOf returns what an error says about a try that changes something, of
// which something was sent or not.
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
			return unsent // Another try is under way; this one has no effect.
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

// traced returns a context whose requests tell whether anything of them was
// sent. The error alone does not: what was sent over a connection that breaks
// is sent again by the transport, because it has an Idempotency-Key, and may
// fail the second time because nobody listens.
func traced(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}
	return httptrace.WithClientTrace(ctx, trace), sent
}

// caller is one client: it does one thing at a time, one try each, at the node
// that chance picks.
type caller struct {
	id   int
	rng  *rand.Rand
	keys *keys

	session *session
	nodes   []*client.Client // One per node, with the root token.
	op      uint64
	at      string // The node that was asked last.
}

// keys gives idempotency keys: the same one until the next operation.
type keys struct{ now [sha256.Size]byte }

func (k *keys) Read(p []byte) (int, error) { return copy(p, k.now[:]), nil }

// newCaller returns the client with a number.
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

// next begins another operation: tries from now on carry another key. It
// returns the operation's name.
func (c *caller) next() string {
	c.op++
	seed := binary.BigEndian.AppendUint64(nil, c.session.cfg.Seed)
	seed = binary.BigEndian.AppendUint64(seed, uint64(c.id))
	c.keys.now = sha256.Sum256(binary.BigEndian.AppendUint64(seed, c.op))
	return hex.EncodeToString(c.keys.now[:8])
}

// any returns a client of the node that chance picks, with a token; "" is the
// root token.
func (c *caller) any(token string) *client.Client {
	i := c.rng.IntN(len(c.nodes))
	one := c.nodes[i]
	c.at = c.session.world.Nodes[i].Name
	if token == "" {
		return one
	}
	return one.WithToken(token)
}

// relieve makes one try of a change that makes the state no larger: that a disk
// is full is no reason to refuse it.
func (c *caller) relieve(
	ctx context.Context, workload, what string, change func(ctx context.Context) error,
) (outcome, error) {
	o, err := c.try(ctx, workload, change)
	if o == full {
		c.session.odd(workload, what, err)
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
		o = unsent // It shows nothing and changes nothing.
	case full:
		c.session.odd(workload, "read", err) // That needs no room.
	case done, refused, unsent:
	}
	c.session.tally.count(workload, o)
	return err
}

// pause waits for about d, as chance has it, and reports whether to go on.
func (c *caller) pause(ctx context.Context, d time.Duration) bool {
	return loop.Sleep(ctx, d/2+time.Duration(c.rng.Int64N(int64(d))))
}

// patient returns a client for all nodes that repeats until somebody serves
// it: for what a run needs and does not check.
func patient(w *world.World, token string) (*client.Client, error) {
	addrs := make([]string, len(w.Nodes))
	for i, n := range w.Nodes {
		addrs[i] = n.URL()
	}
	return client.New(client.Config{Addrs: addrs, Token: token, RetryFor: time.Minute})
}
