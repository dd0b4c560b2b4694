package node

import (
	"context"
	"strings"

	"berth/cluster/membership"
	"berth/compute"
	"berth/fsm"
	"berth/node/replication"
)

// checkRemoval refuses the removal of a node without which too few voters
// would answer. The last server stays.
func (n *Node) checkRemoval(ctx context.Context, id compute.NodeID) error {
	return votersRefusal(n.machine.View(), n.cluster.CheckRemoval(ctx, id))
}

// votersRefusal says in the names of nodes what is in the way; nil for
// nothing.
func votersRefusal(view *fsm.View, r *membership.Removal) error {
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
		names[i] = replication.NodeName(view, id)
	}
	return compute.Errorf(compute.CodeConflict,
		"Without it %d of %d voters would answer, too few to go on: bring %s back or remove it first.",
		r.Answering, r.Voters, strings.Join(names, " and ")).Named("quorum_lost")
}
