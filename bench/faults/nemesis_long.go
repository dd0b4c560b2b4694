package faults

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"berth/bench/faults/world"
	"berth/loop"
)

// Long faults follow a plan, not chance, if other faults are chosen too. They
// take a minute each, and a run needs some.
const (
	longRun   = 4 * time.Minute // Shorter runs have no long faults unless configured.
	longFirst = time.Minute     // From the first fault to the first long one.
	longEvery = 150 * time.Second
	aimTime   = 3500 * time.Millisecond // Most code has ended by then.
)

// longNemeses isolate or stop a node for longer than a lease and the leader's
// margin behind it. The leader then gives up the node's executions.
// Replacements start while the node is still away, and the first attempt must
// have ended by then.
func longNemeses() []nemesis {
	return []nemesis{
		{"long-partition", seconds(35, 60), func(ctx context.Context, b *breaker) (repairFunc, error) {
			rest := slices.DeleteFunc(b.machines(), func(o *world.Node) bool { return o == b.target })
			return b.world.Heal, b.cut(ctx, []*world.Node{b.target}, rest, true, b.rng.IntN(2) == 0)
		}},
		{"long-pause", seconds(35, 50), func(_ context.Context, b *breaker) (repairFunc, error) {
			return func(context.Context) error { return b.target.Thaw() }, b.target.Freeze()
		}},
		{"long-crash", seconds(40, 50), func(ctx context.Context, b *breaker) (repairFunc, error) {
			return restart(b.target), b.target.Crash(ctx)
		}},
	}
}

// isLong reports whether a nemesis outlasts leases.
func (n *nemesis) isLong() bool { return slices.Contains(longNames(), n.name) }

// longNames returns the names of the nemeses that outlast leases.
func longNames() []string {
	var names []string
	for _, n := range longNemeses() {
		names = append(names, n.name)
	}
	return names
}

// machines returns all nodes, workers too.
func (b *breaker) machines() []*world.Node { return slices.Concat(b.world.Nodes, b.world.Workers) }

// aim chooses the target of a long fault. A node with more executions that run
// for longer than a moment is likelier.
func (b *breaker) aim(ctx context.Context) error {
	machines := b.machines()
	before := make([][]int, len(machines))
	for i, n := range machines {
		var err error
		if before[i], err = n.Supervisors(); err != nil {
			return err
		}
	}
	if !loop.Sleep(ctx, aimTime) {
		return ctx.Err()
	}
	weights := make([]int, len(machines))
	for i, n := range machines {
		now, err := n.Supervisors()
		if err != nil {
			return err
		}
		for _, pid := range now {
			if slices.Contains(before[i], pid) {
				weights[i]++
			}
		}
	}
	b.target = machines[weighted(b.rng, weights)]
	b.hits(b.target)
	b.note = b.target.Name
	return nil
}

// weighted returns a random index in proportion to the weights; any index if
// all weights are 0.
func weighted(rng *rand.Rand, weights []int) int {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return rng.IntN(len(weights))
	}
	at := rng.IntN(sum)
	for i, w := range weights {
		if at -= w; at < 0 {
			return i
		}
	}
	return len(weights) - 1
}

// schedule chooses the next fault.
type schedule struct {
	rng         *rand.Rand
	short, long []nemesis
	due         time.Duration // When the next long fault is due, since the first fault.
}

// newSchedule returns a schedule of the chosen nemeses.
func newSchedule(rng *rand.Rand, chosen []nemesis) *schedule {
	c := &schedule{rng: rng, due: longFirst}
	for _, n := range chosen {
		if n.isLong() {
			c.long = append(c.long, n)
		} else {
			c.short = append(c.short, n)
		}
	}
	return c
}

// next returns the next nemesis at a time since the first fault.
func (c *schedule) next(since time.Duration) nemesis {
	from := c.short
	switch {
	case len(from) == 0:
		from = c.long
	case len(c.long) > 0 && since >= c.due:
		from, c.due = c.long, since+longEvery
	}
	return from[c.rng.IntN(len(from))]
}
