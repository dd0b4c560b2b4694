package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"berth/bench/faults/check"
	"berth/bench/faults/world"
)

// An injectFunc injects a fault and returns the function that repairs it.
type injectFunc = func(context.Context, *breaker) (repairFunc, error)

type repairFunc = func(context.Context) error

// recoverFunc waits for the cluster's own recovery after the repair. The error
// is stuck if the cluster does not recover.
type recoverFunc = func(context.Context) error

// nemesis injects a fault, holds it and repairs it.
type nemesis struct {
	name string
	// hold is the shortest and the longest duration of the fault.
	hold   [2]time.Duration
	inject injectFunc
}

// breaker is the environment of a nemesis.
type breaker struct {
	world  *world.World
	rng    *rand.Rand
	leader *world.Node // Never nil: without a leader, the first node.
	note   string      // Describes the fault and its result.
	missed bool        // Nothing reached the injected fault.
	slow   string      // The only slow node; "" for none.
	target *world.Node // The target of a long fault.
	on     []string    // The affected nodes; none for all.

	hold    time.Duration     // The duration of the fault.
	recover recoverFunc       // Runs after the repair; nil to wait only until the cluster is whole.
	wrong   []check.Violation // Violations during the fault.
}

// Endings of a fault's note.
const (
	notReached = ": not reached"
	killed     = ": it was killed"
)

// violate records a violation.
func (b *breaker) violate(what, object, format string, args ...any) {
	b.wrong = append(b.wrong, check.Violation{What: what, Object: object, Detail: fmt.Sprintf(format, args...)})
}

// hits sets the affected nodes.
func (b *breaker) hits(nodes ...*world.Node) {
	for _, n := range nodes {
		b.on = append(b.on, n.Name)
	}
}

// miss records that nothing reached the injected fault.
func (b *breaker) miss() {
	b.missed = true
	b.note += notReached
}

// follower returns a random node that does not lead.
func (b *breaker) follower() *world.Node {
	others := b.others()
	return others[b.rng.IntN(len(others))]
}

// others returns the nodes that do not lead.
func (b *breaker) others() []*world.Node {
	return slices.DeleteFunc(slices.Clone(b.world.Nodes), func(n *world.Node) bool { return n == b.leader })
}

// any returns a random node.
func (b *breaker) any() *world.Node { return b.world.Nodes[b.rng.IntN(len(b.world.Nodes))] }

// restart returns a function that starts nodes again.
func restart(nodes ...*world.Node) repairFunc {
	return func(ctx context.Context) error {
		for _, n := range nodes {
			if err := n.Start(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// nemeses returns all nemeses.
func nemeses() []nemesis {
	return slices.Concat(
		[]nemesis{calm()}, processNemeses(), networkNemeses(), slowNemeses(), diskNemeses(), pointNemeses(),
		workerNemeses(), longNemeses(),
	)
}

// needPoints returns the names of the nemeses that need a program with
// failpoints.
func needPoints() []string {
	var names []string
	for _, n := range pointNemeses() {
		names = append(names, n.name)
	}
	return names
}

// Nemeses returns the sorted names of all faults.
func Nemeses() []string {
	var names []string
	for _, n := range nemeses() {
		names = append(names, n.name)
	}
	slices.Sort(names)
	return names
}

// calm injects nothing: any election during it is spurious.
func calm() nemesis {
	return nemesis{calmNemesis, seconds(5, 10), func(context.Context, *breaker) (repairFunc, error) {
		return func(context.Context) error { return nil }, nil
	}}
}

// processNemeses kill and pause processes.
func processNemeses() []nemesis {
	kill := func(pick func(*breaker) []*world.Node) injectFunc {
		return func(ctx context.Context, b *breaker) (repairFunc, error) {
			nodes := pick(b)
			b.hits(nodes...)
			for _, n := range nodes {
				if err := n.Kill(ctx); err != nil {
					return nil, err
				}
			}
			return restart(nodes...), nil
		}
	}
	pause := func(pick func(*breaker) *world.Node) injectFunc {
		return func(_ context.Context, b *breaker) (repairFunc, error) {
			n := pick(b)
			b.hits(n)
			return func(context.Context) error { return n.Thaw() }, n.Freeze()
		}
	}
	leader := func(b *breaker) *world.Node { return b.leader }
	return []nemesis{
		{"leader-kill", seconds(1, 6), kill(func(b *breaker) []*world.Node { return []*world.Node{b.leader} })},
		{"follower-kill", seconds(1, 6), kill(func(b *breaker) []*world.Node { return []*world.Node{b.follower()} })},
		{"all-kill", seconds(0, 1), kill(func(b *breaker) []*world.Node { return b.world.Nodes })},
		{"leader-pause", seconds(0, 8), pause(leader)},
		{"follower-pause", seconds(0, 8), pause((*breaker).follower)},
		{"machine-crash", seconds(1, 6), func(ctx context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			b.hits(n)
			return restart(n), n.Crash(ctx)
		}},
		{"supervisor-kill", seconds(1, 3), func(ctx context.Context, b *breaker) (repairFunc, error) {
			n := b.any()
			b.hits(n)
			killed, err := n.KillSupervisors(ctx)
			b.note = fmt.Sprintf("%d of %s", killed, n.Name)
			return func(context.Context) error { return nil }, err
		}},
	}
}

func seconds(from, to int) [2]time.Duration {
	return [2]time.Duration{time.Duration(from) * time.Second, time.Duration(to) * time.Second}
}

// networkNemeses cut nodes off from each other. Clients still reach them all.
func networkNemeses() []nemesis {
	heal := func(b *breaker) repairFunc { return b.world.Heal }
	return []nemesis{
		{"partition-leader", seconds(2, 12), func(ctx context.Context, b *breaker) (repairFunc, error) {
			b.hits(b.leader)
			return heal(b), b.cut(ctx, []*world.Node{b.leader}, b.others(), true, b.rng.IntN(2) == 0)
		}},
		{"partition-follower", seconds(2, 12), func(ctx context.Context, b *breaker) (repairFunc, error) {
			n := b.follower()
			b.hits(n)
			rest := slices.DeleteFunc(slices.Clone(b.world.Nodes), func(o *world.Node) bool { return o == n })
			return heal(b), b.cut(ctx, []*world.Node{n}, rest, true, b.rng.IntN(2) == 0)
		}},
		{"partition-one-way", seconds(2, 12), func(ctx context.Context, b *breaker) (repairFunc, error) {
			from, to := []*world.Node{b.leader}, b.others()
			if b.rng.IntN(2) == 0 {
				from, to = to, from
			}
			return heal(b), b.cut(ctx, from, to, false, false)
		}},
		// Every node still communicates with one node that reaches all.
		{"partition-bridge", seconds(2, 12), func(ctx context.Context, b *breaker) (repairFunc, error) {
			bridge := b.any()
			rest := slices.DeleteFunc(slices.Clone(b.world.Nodes), func(o *world.Node) bool { return o == bridge })
			half := len(rest) / 2
			return heal(b), b.cut(ctx, rest[:half], rest[half:], true, false)
		}},
	}
}

// cut blocks traffic from one group of nodes to another, and with both, in the
// other direction too.
func (b *breaker) cut(ctx context.Context, from, to []*world.Node, both, reset bool) error {
	for _, f := range from {
		for _, t := range to {
			if err := b.world.Block(ctx, f, t, reset); err != nil {
				return err
			}
			if !both {
				continue
			}
			if err := b.world.Block(ctx, t, f, reset); err != nil {
				return err
			}
		}
	}
	return nil
}
