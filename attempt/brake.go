package attempt

import (
	"cmp"
	"slices"

	"berth/compute"
)

const (
	// BrakeWindow is within which time nodes vanish at once: a TTL, and another
	// one for those that a new leader has to find silent by itself.
	BrakeWindow = 2 * NodeTTL

	// BrakeLeast is how many nodes have to vanish at once at least: one that
	// dies alone is never held back, however small the cluster is.
	BrakeLeast = 2
)

// Vanished returns the nodes that vanished at once, when those are so many that
// the fault is rather the network's, or the leader's, than theirs: then no
// attempt is given up until they are heard again or an operator says that they
// are gone. It returns nil while that is not so.
//
// So many are at least BrakeLeast and more than the set share of them and of
// the nodes that are up. A drained node is expected to go. What is asked are
// records of the state, so that every node answers alike and a new leader goes
// on with the brake of the one before.
func Vanished(nodes []*compute.Node, b compute.Brake) []*compute.Node {
	up := 0
	var down []*compute.Node
	for _, n := range nodes {
		switch {
		case n.Drained:
		case n.State == compute.NodeUp:
			up++
		case n.ChangedAt > b.ReleasedAt:
			down = append(down, n)
		}
	}
	slices.SortStableFunc(down, func(a, b *compute.Node) int { return cmp.Compare(a.ChangedAt, b.ChangedAt) })
	var most []*compute.Node
	for from, to := 0, 0; to < len(down); to++ {
		for down[to].ChangedAt.Sub(down[from].ChangedAt) > BrakeWindow {
			from++
		}
		if group := down[from : to+1]; len(group) > len(most) {
			most = group
		}
	}
	if len(most) < BrakeLeast || !tooMany(len(most), up+len(most), b.SharePercent) {
		return nil
	}
	return most
}

// tooMany reports whether n of all are more than a share in percent; 0 is a
// third.
func tooMany(n, all, percent int) bool {
	if percent == 0 {
		return 3*n > all
	}
	return 100*n > percent*all
}
