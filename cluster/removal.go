package cluster

import (
	"context"
	"slices"

	"github.com/hashicorp/raft"

	"berth/compute"
)

// Removal says why a server must not be removed now.
type Removal struct {
	// Voters is how many would vote without it, 0 when it is the last one;
	// Answering how many of them answer, and Silent are those that do not.
	Voters, Answering int
	Silent            []compute.NodeID
}

// CheckRemoval asks all servers and returns nil when the node can be removed
// without the loss of the quorum: when it is no server, or when the leader can
// take its vote, in steps each of which leaves a quorum that answers. Standbys
// that answer count as ready to vote in its place. The answer is of the moment:
// a server that is removed keeps its vote for as long as it is needed, even if
// others fail right after.
func (c *Cluster) CheckRemoval(ctx context.Context, id compute.NodeID) *Removal {
	servers := c.servers()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	replies := c.askStatus(ctx, servers)
	seen := newCensus()
	for node, reply := range replies {
		seen.note(node, max(c.cfg.PromoteAfter, 1), reply.err == nil, reply.err == nil)
	}
	return c.foresee(servers, seen, id)
}

// foresee returns what is in the way of the removal of a server, nil for
// nothing.
func (c *Cluster) foresee(servers []raft.Server, seen *census, id compute.NodeID) *Removal {
	r := c.roll(servers, seen)
	// This node may follow: for the leader it answers, and keeps up.
	if at := r.at(c.id); at >= 0 {
		r.members[at].steady = max(c.cfg.PromoteAfter, 1)
	}
	if leader, known := c.Leader(); known {
		r.self = leader
	}
	at := r.at(id)
	if at < 0 {
		return nil
	}
	r.members[at].removed, r.transferred = true, false
	return r.foresee(id)
}

// foresee makes all changes that are due and returns what is in the way of
// the server's leaving.
func (r *roll) foresee(id compute.NodeID) *Removal {
	for range 4 * (len(r.members) + 1) { // More than any server can need: each moves up, down and out at most once.
		step, obstacles := r.next()
		if step.action == actionNone {
			at := slices.IndexFunc(obstacles, func(o obstacle) bool { return o.server == id })
			if at < 0 {
				return nil
			}
			o := obstacles[at]
			return &Removal{Voters: o.voters, Answering: o.current, Silent: o.silent}
		}
		r = r.with(step)
		if r.at(id) < 0 {
			return nil
		}
	}
	return nil
}
