package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/api/client"
	"berth/bench/faults/world"
)

// How long a node is waited for that may be about to end.
const (
	endPoll     = 50 * time.Millisecond
	endsWithin  = time.Second // A process whose threads the tracer has let go.
	settleLimit = 30 * time.Second
)

// What strace does to the system calls that sync a file.
const (
	syncsLate = "fdatasync,fsync:delay_exit=200000" // By 200 ms.
	syncsFail = "fdatasync,fsync:error=EIO"
	syncsHang = "fdatasync,fsync:delay_exit=30000000" // For 30 s.
)

// diskNemeses break disks.
func diskNemeses() []nemesis {
	traced := func(pick func(*breaker) *world.Node, inject string) breaking {
		return func(ctx context.Context, b *breaker) (mending, error) {
			n := pick(b)
			b.note = n.Name
			return b.trace(ctx, n, inject)
		}
	}
	leader := func(b *breaker) *world.Node { return b.leader }
	return []nemesis{
		{"power-cut", seconds(0, 2), func(ctx context.Context, b *breaker) (mending, error) {
			return restart(b.world.Nodes...), b.world.PowerCut(ctx)
		}},
		{"slow-disk", seconds(3, 8), traced((*breaker).any, syncsLate)},
		{"leader-failing-disk", seconds(2, 5), traced(leader, syncsFail)},
		{"follower-failing-disk", seconds(2, 5), traced((*breaker).follower, syncsFail)},
		{"leader-hanging-disk", seconds(3, 6), traced(leader, syncsHang)},
		{"follower-hanging-disk", seconds(3, 6), traced((*breaker).follower, syncsHang)},
		{"full-disk", seconds(3, 8), func(_ context.Context, b *breaker) (mending, error) {
			n := b.any()
			mend := func(ctx context.Context) error { return errors.Join(n.Empty(), restart(n)(ctx)) }
			return mend, n.Fill(64 << 10)
		}},
		{"damaged-file", seconds(0, 1), damageFile},
	}
}

// trace interferes with system calls of a node, which may end by that.
func (b *breaker) trace(ctx context.Context, n *world.Node, inject string) (mending, error) {
	stop, err := n.Trace(ctx, inject)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		// A process whose thread is held in the kernel by the tracer goes on, or
		// ends, once the tracer has let go.
		if ended, _ := n.Ended(); !ended && !n.Running() {
			return errors.Join(stop(), n.Kill(ctx), n.Start(ctx))
		}
		err := stop()
		sleep(ctx, endsWithin) // It may have been about to end.
		return errors.Join(err, b.settle(ctx, n), restart(n)(ctx))
	}, nil
}

// settle waits until the node's process answers or has ended: on a busy
// machine one that is about to end takes its time.
func (b *breaker) settle(ctx context.Context, n *world.Node) error {
	c, err := client.New(client.Config{Addrs: []string{n.URL()}, RetryFor: -1})
	if err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for {
		if ended, _ := n.Ended(); ended || c.Ready(waiting) == nil || !sleep(waiting, endPoll) {
			return ctx.Err()
		}
	}
}

// damageFile flips a bit in or cuts a file of a node that was killed, and
// starts it: the node must say so, or mend itself from the others. What it
// takes without a word shows when states are compared.
func damageFile(ctx context.Context, b *breaker) (mending, error) {
	n := b.follower()
	if err := n.Kill(ctx); err != nil {
		return nil, err
	}
	what, restore, err := n.Damage(b.rng)
	if err != nil {
		return nil, err
	}
	aside, err := n.Asides()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := errors.Join(n.Start(ctx), b.settle(ctx, n)); err != nil {
			return err
		}
		if ended, how := n.Ended(); ended {
			b.note = fmt.Sprintf("%s: it said so and ended (%v)", what, how)
			return errors.Join(restore(), n.Start(ctx))
		}
		now, err := n.Asides()
		b.note = what + ": it was of no consequence"
		if slices.ContainsFunc(now, func(dir string) bool { return !slices.Contains(aside, dir) }) {
			b.note = what + ": it came in empty"
		}
		return err
	}, nil
}
