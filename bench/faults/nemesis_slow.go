package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/bench/faults/world"
	"berth/fault"
	"berth/loop"
)

// flapPeriod is how long a flapping node is connected, and how long it is not.
const flapPeriod = 2 * time.Second

// oomBytes is less than the new memory a node needs within a second. Memory
// charged earlier stays with the node's previous cgroup.
const oomBytes = 1 << 20

// slowNemeses degrade networks without cutting them, and limit memory.
func slowNemeses() []nemesis {
	heal := func(b *breaker) repairFunc { return b.world.Heal }
	return []nemesis{
		{"packet-loss", seconds(4, 10), func(ctx context.Context, b *breaker) (repairFunc, error) {
			share := 50 + b.rng.IntN(250)
			for _, n := range b.world.Nodes {
				if err := b.world.Lose(ctx, n, share); err != nil {
					return nil, err
				}
			}
			return heal(b), nil
		}},
		{"slow-link", seconds(4, 10), func(ctx context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			return func(ctx context.Context) error { return b.world.Slow(ctx, n, 0) }, b.world.Slow(ctx, n, 128+b.rng.IntN(2000))
		}},
		{"flap", seconds(8, 16), func(ctx context.Context, b *breaker) (repairFunc, error) {
			return b.flap(ctx, b.follower())
		}},
		{"out-of-memory", seconds(1, 4), func(_ context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			b.note = n.Name
			repair := func(ctx context.Context) error {
				if ended, _ := n.Ended(); ended {
					b.note += killed
				} else {
					b.miss() // The limit ends with the process.
				}
				return errors.Join(n.Kill(ctx), n.Start(ctx))
			}
			return repair, n.LimitMemory(oomBytes)
		}},
	}
}

// flap disconnects and reconnects a node every two seconds until the repair.
func (b *breaker) flap(ctx context.Context, n *world.Node) (repairFunc, error) {
	rest := slices.DeleteFunc(slices.Clone(b.world.Nodes), func(o *world.Node) bool { return o == n })
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		var err error
		for away := true; err == nil && ctx.Err() == nil; away = !away {
			if away {
				err = b.cut(ctx, []*world.Node{n}, rest, true, false)
			} else {
				err = b.world.Heal(ctx)
			}
			loop.Sleep(ctx, flapPeriod)
		}
		if ctx.Err() != nil {
			err = nil // The repair may have interrupted the command.
		}
		ended <- err
	}()
	return func(ctx context.Context) error {
		stop()
		return errors.Join(<-ended, b.world.Heal(ctx))
	}, nil
}

// pointNemeses need a program built with failpoints.
func pointNemeses() []nemesis {
	return []nemesis{
		{"clock", seconds(4, 10), func(_ context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			shift := time.Duration(b.rng.Int64N(int64(2*time.Hour))) - time.Hour
			b.note = fmt.Sprintf("%s by %v", n.Name, shift.Round(time.Second))
			return func(context.Context) error { return n.Arm("") }, n.Arm(fmt.Sprintf("clock=%v", shift))
		}},
		{"failpoint", seconds(1, 5), func(_ context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			all := fault.Points()
			point := all[b.rng.IntN(len(all))].Name
			b.note = fmt.Sprintf("%s at %s", n.Name, point)
			repair := func(ctx context.Context) error {
				if ended, _ := n.Ended(); ended {
					b.note += ": reached"
				} else {
					b.miss()
				}
				return errors.Join(n.Arm(""), restart(n)(ctx))
			}
			return repair, n.Arm(point + "=exit")
		}},
	}
}
