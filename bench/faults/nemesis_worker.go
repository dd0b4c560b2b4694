package faults

import (
	"context"
	"slices"

	"berth/bench/faults/world"
)

// workerNemeses break nodes without a replica. About half of the faults cut a
// worker off for longer than its leases last. Independently, half cut it off
// from the leader alone: it then still hears of its attempts from other
// servers, and must not go on with them.
func workerNemeses() []nemesis {
	return []nemesis{
		{"worker-kill", seconds(1, 6), func(ctx context.Context, b *breaker) (repairFunc, error) {
			n := b.worker()
			b.hits(n)
			return restart(n), n.Kill(ctx)
		}},
		{"worker-partition", seconds(2, 40), func(ctx context.Context, b *breaker) (repairFunc, error) {
			from := b.world.Nodes
			if b.rng.IntN(2) == 0 {
				from = []*world.Node{b.leader}
				b.note = "from " + b.leader.Name
			}
			n := b.worker()
			b.hits(n)
			return b.world.Heal, b.cut(ctx, []*world.Node{n}, from, true, b.rng.IntN(2) == 0)
		}},
	}
}

// needWorkers returns the names of the nemeses that need a worker.
func needWorkers() []string {
	var names []string
	for _, n := range workerNemeses() {
		names = append(names, n.name)
	}
	return names
}

// worker returns a random worker.
func (b *breaker) worker() *world.Node { return b.world.Workers[b.rng.IntN(len(b.world.Workers))] }

// lacks reports whether c does not meet the needs of a nemesis.
func (c Config) lacks(name string) bool {
	return !c.Points && slices.Contains(needPoints(), name) || c.Workers == 0 && slices.Contains(needWorkers(), name) ||
		c.Duration < longRun && slices.Contains(longNames(), name)
}
