package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"berth/api/client"
	"berth/api/wire"
	"berth/bench/faults/world"
	"berth/loop"
)

// Limits of a node with a full disk, and after space is freed.
const (
	fullLeft    = 64 << 10 // Free bytes.
	fullAnswer  = 10 * time.Second
	fullRecover = 30 * time.Second
	fullPoll    = 100 * time.Millisecond
	fullTag     = "full"
)

// fill fills the disks of nodes. Until the repair, no process may exit and each
// node answers reads. A write gets 507 if no node has space. Otherwise it may
// succeed, because another node can lead. After space is freed, each node
// accepts writes without a restart.
func (b *breaker) fill(nodes ...*world.Node) (repairFunc, error) {
	for _, n := range nodes {
		if err := n.Fill(fullLeft); err != nil {
			return nil, errors.Join(err, empty(nodes))
		}
	}
	b.recover = func(ctx context.Context) error {
		for _, n := range nodes {
			if err := b.ask(ctx, n, probeRequest{"write", writeProbe, fullRecover, accepted}); err != nil {
				return stuck{fmt.Errorf("after space was freed: %w", err)}
			}
		}
		return ctx.Err()
	}
	return func(ctx context.Context) error {
		for _, n := range nodes {
			b.checkFull(ctx, n, len(nodes) == len(b.world.Nodes))
		}
		return errors.Join(ctx.Err(), empty(nodes))
	}, nil
}

// empty frees the space on the nodes' disks.
func empty(nodes []*world.Node) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, n.Empty())
	}
	return errors.Join(errs...)
}

// checkFull records violations of a node whose disk is full.
func (b *breaker) checkFull(ctx context.Context, n *world.Node, everywhere bool) {
	if ended, how := n.Ended(); ended {
		b.violate("full disk", "node "+n.Name, "its process ended: %v", how)
		return
	}
	refused := func(code string) bool { return code == noSpace || code == "" && !everywhere }
	err := errors.Join(
		b.ask(ctx, n, probeRequest{"read", readProbe, fullAnswer, accepted}),
		b.ask(ctx, n, probeRequest{"write", writeProbe, fullAnswer, refused}),
	)
	if err != nil && ctx.Err() == nil {
		b.violate("full disk", "node "+n.Name, "%v", err)
	}
}

// probeRequest is a request that is repeated until a node gives a valid answer.
type probeRequest struct {
	what  string
	ask   func(context.Context, *client.Client) error
	limit time.Duration
	right func(code string) bool // Judges an answer's code; "" is success.
}

func accepted(code string) bool { return code == "" }

func readProbe(ctx context.Context, c *client.Client) error {
	_, err := c.OrgQuotas(ctx, probeOrg)
	return err
}

func writeProbe(ctx context.Context, c *client.Client) error {
	_, err := c.SetQuota(ctx, wire.NewQuota{Org: probeOrg, Tag: fullTag, MaxGPUMilli: 1})
	return err
}

// ask repeats a request until the answer is valid. The error has the last
// answer.
func (b *breaker) ask(ctx context.Context, n *world.Node, q probeRequest) error {
	c, err := client.New(client.Config{Addrs: []string{n.URL()}, Token: b.world.RootToken, RetryFor: -1})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer cancel()
	last := "nothing"
	for {
		one, done := context.WithTimeout(ctx, tryLimit)
		err := q.ask(one, c)
		done()
		code := client.CodeOf(err)
		switch {
		case (err == nil || code != "") && q.right(code):
			return nil
		case err == nil:
			last = "that it took effect"
		case ctx.Err() == nil:
			last = err.Error()
		}
		if !loop.Sleep(ctx, fullPoll) {
			return fmt.Errorf("a %s at %s had no valid answer within %v; the last was: %s", q.what, n.Name, q.limit, last)
		}
	}
}
