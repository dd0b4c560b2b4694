package node

import (
	"context"
	"strings"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
)

// Removed reports whether err is the end of a node because the cluster removed
// it: started again, it ends the same way.
func Removed(err error) bool { return cluster.IsRemoved(err) }

// checkRemoval refuses the removal of a node without which too few voters
// would answer. The last server stays.
func (n *Node) checkRemoval(ctx context.Context, id compute.NodeID) error {
	return removalRefusal(n.machine.View(), n.cluster.CheckRemoval(ctx, id))
}

// removalRefusal says in the names of nodes what is in the way; nil for
// nothing.
func removalRefusal(view *fsm.View, r *cluster.Removal) error {
	switch {
	case r == nil:
		return nil
	case r.Voters == 0:
		return compute.Errorf(compute.CodeConflict,
			"It is the last server, which holds the state: have another one join first.").Named("last_server")
	case len(r.Silent) == 0:
		return compute.Errorf(compute.CodeConflict,
			"None of the other servers can lead yet: wait until one keeps up.").Named("quorum_lost")
	}
	names := make([]string, len(r.Silent))
	for i, id := range r.Silent {
		names[i] = id.String()
		if known, ok := view.Node(id); ok {
			names[i] = known.Name
		}
	}
	return compute.Errorf(compute.CodeConflict,
		"Without it %d of %d voters would answer, too few to go on: bring %s back or remove it first.",
		r.Answering, r.Voters, strings.Join(names, " and ")).Named("quorum_lost")
}
