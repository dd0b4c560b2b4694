package node

import (
	"context"
	"slices"
	"strings"
	"time"

	"berth/api/wire"
	"berth/cluster"
	"berth/cluster/membership"
	"berth/compute"
	"berth/fsm"
	"berth/node/replication"
)

// members answers the API's questions about the nodes of the cluster.
type members struct {
	cluster *cluster.Cluster
	machine *fsm.FSM
}

// newJoinToken makes a token with which nodes may join.
func (m members) newJoinToken(role compute.Role, ttl time.Duration, uses int) (string, compute.JoinToken, error) {
	token, err := m.cluster.NewJoinToken()
	if err != nil {
		return "", compute.JoinToken{}, err
	}
	return token.String(), compute.JoinToken{
		ID: token.ID, Hash: token.SecretHash(), Role: role, Uses: uses,
		ExpiresAt: compute.InstantOf(m.cluster.Clock().Now().Add(ttl)),
	}, nil
}

// healthTimeout is how long lists of nodes wait for the leader's observations.
const healthTimeout = time.Second

// peers returns the Raft configuration, with the leader's observations.
func (m members) peers(ctx context.Context) ([]wire.Peer, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	leading, _ := m.cluster.Leader()
	found, err := m.cluster.Health(ctx)
	var peers []wire.Peer
	for _, s := range m.cluster.Servers() {
		p := wire.Peer{ID: s.ID, Address: s.Address, Voter: s.Voter, Leader: s.ID == leading}
		if err == nil {
			p.Diverged = new(slices.Contains(found.Diverged, s.ID))
		}
		peers = append(peers, p)
	}
	return peers, nil
}

// clocks returns by how much the clocks of the nodes are ahead of the cluster's,
// as far as it is known.
func (m members) clocks(ctx context.Context) map[compute.NodeID]time.Duration {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	found, _ := m.cluster.Health(ctx) // Without a leader there are none.
	clocks := make(map[compute.NodeID]time.Duration, len(found.Clocks))
	for _, c := range found.Clocks {
		clocks[c.Node] = c.Ahead
	}
	return clocks
}

// checkRemoval refuses the removal of a node without which too few voters
// would answer. The last server stays.
func (m members) checkRemoval(ctx context.Context, id compute.NodeID) error {
	return votersRefusal(m.machine.View(), m.cluster.CheckRemoval(ctx, id))
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
