package attempt

import (
	"iter"

	"berth/compute"
)

const (
	// BrakeWindow is the time within which nodes vanish at once: a TTL, and another
	// one for those that a new leader has to time by itself.
	BrakeWindow = 2 * NodeTTL

	// BrakeLeast is how many nodes must vanish at once at least: one that
	// dies alone is never held back, however small the cluster is.
	BrakeLeast = 2
)

// BrakedSince returns since when the brake holds, zero while it does not. The brake
// is a circuit breaker for rescheduling: when many nodes vanish at once, the fault
// is more likely the network's or the leader's than theirs. It is called at each
// change of a node's record, with b as the change before left it, and its result
// is b.Since from then on.
//
// The brake begins when nodes fall silent: those down for no longer than
// BrakeWindow are at least BrakeLeast, and more than the set share of them and of
// the nodes that are up. It ends when that no longer holds for all that fell
// silent since, unless it begins with that change. So nodes that have been down
// for long, or are drained or removed later, never begin it. A drained node is
// expected to go: it is not one of those that vanish, and counts as up while it is
// heard.
func BrakedSince(nodes iter.Seq[*compute.Node], b compute.Brake, now compute.Instant) compute.Instant {
	if !b.Since.IsZero() && !vanishedSince(nodes, b, b.Since).IsZero() {
		return b.Since
	}
	return vanishedSince(nodes, b, now.Add(-BrakeWindow))
}

// vanishedSince returns when the first of the nodes vanished that have done so
// since from, zero unless they are too many.
func vanishedSince(nodes iter.Seq[*compute.Node], b compute.Brake, from compute.Instant) (since compute.Instant) {
	up, vanished := 0, 0
	for n := range nodes {
		switch {
		case n.State == compute.NodeUp:
			up++
		case vanishes(n, b, from):
			if vanished++; vanished == 1 || n.ChangedAt < since {
				since = n.ChangedAt
			}
		}
	}
	if vanished < BrakeLeast || !tooMany(vanished, up+vanished, b.SharePercent) {
		return 0
	}
	return since
}

// Vanished returns the nodes that hold the brake, none while it is not held. No
// attempt is given up until they are heard again, are drained, or an operator
// declares them gone. The answer depends on records of the state alone, so that
// every node gives the same one and a new leader continues the brake.
func Vanished(nodes iter.Seq[*compute.Node], b compute.Brake) (vanished []*compute.Node) {
	if b.Since.IsZero() {
		return nil
	}
	for n := range nodes {
		if n.State == compute.NodeDown && vanishes(n, b, b.Since) {
			vanished = append(vanished, n)
		}
	}
	return vanished
}

// vanishes reports whether a node that is down has vanished since from.
func vanishes(n *compute.Node, b compute.Brake, from compute.Instant) bool {
	return !n.Drained && n.ChangedAt >= from && n.ChangedAt > b.ReleasedAt
}

// tooMany reports whether n of all are more than a share in percent; 0 is a
// third.
func tooMany(n, all, percent int) bool {
	if percent == 0 {
		return 3*n > all
	}
	return 100*n > percent*all
}
