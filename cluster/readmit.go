package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
)

const (
	readmitTries = 3 // The configuration may change in between.
	readmitRetry = 2 * time.Second
)

// handleRejoin takes the vote of a server with a damaged replica. Any server
// accepts the request; the leader decides.
func (c rejoiner) handleRejoin(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var req rejoinRequest
	if err := c.codec.Unmarshal(data, &req); err != nil || req.Node.IsZero() {
		return nil, compute.Errorf(compute.CodeInvalid, "The request to rejoin cannot be read.")
	}
	if c.terms.ready() == 0 {
		leader, known := c.Leader()
		if !known || leader == c.id || leader == req.Node || peer.ID != req.Node {
			return nil, errNoLeader()
		}
		return c.Call(ctx, leader, methodRejoin, data)
	}
	answer, err := c.readmit(ctx, req.Node)
	if err != nil {
		c.logger.Warn("rejoin refused", "node", req.Node, "err", err)
		return nil, err
	}
	c.logger.Warn("vote taken from server with damaged replica", "node", req.Node,
		"term", answer.Term, "index", answer.Index)
	return c.codec.Marshal(answer), nil
}

// readmit demotes the server and returns this leader's term, in which that is
// committed, and a committed entry at or behind it. It can be repeated.
func (c rejoiner) readmit(ctx context.Context, id compute.NodeID) (rejoinAnswer, error) {
	term := c.terms.ready()
	if id == c.id {
		return rejoinAnswer{}, compute.Errorf(compute.CodeConflict, "The leader cannot take its own vote.")
	}
	for range readmitTries {
		future := c.raft.GetConfiguration()
		if err := future.Error(); err != nil {
			return rejoinAnswer{}, errNoLeader()
		}
		servers := future.Configuration().Servers
		if !raftconf.Votes(servers, id) {
			err := c.confirmConfiguration(term)
			return rejoinAnswer{Term: term, Index: c.raft.CommitIndex()}, err // Behind the barrier.
		}
		if err := c.mayTakeVote(ctx, servers, id); err != nil {
			return rejoinAnswer{}, err
		}
		if err := c.raft.DemoteVoter(raftconf.ServerID(id), future.Index(), changeTimeout).Error(); err != nil {
			c.logger.Info("vote not taken, retrying", "node", id, "err", err)
		}
	}
	return rejoinAnswer{}, compute.Errorf(compute.CodeUnavailable,
		"The configuration keeps changing.").Retry(readmitRetry)
}

// confirmConfiguration returns nil once the configuration that this leader had at
// the call is committed in its term. One that is only in its log may be overruled,
// and the demotion with it.
func (c rejoiner) confirmConfiguration(term uint64) error {
	err := c.raft.Barrier(changeTimeout).Error()
	if err != nil || c.terms.ready() != term || c.raft.CurrentTerm() != term {
		return errNoLeader()
	}
	return nil
}

// mayTakeVote asks the other voters for their status, and refuses unless they are
// a quorum without the one that is to lose its vote.
func (c rejoiner) mayTakeVote(ctx context.Context, servers []raft.Server, id compute.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	others := slices.DeleteFunc(slices.Clone(servers), func(s raft.Server) bool {
		return s.ID == raftconf.ServerID(id) || s.Suffrage != raft.Voter
	})
	current := 0
	if raftconf.Votes(others, c.id) {
		current = 1
	}
	var behind []compute.NodeID
	for other, reply := range c.members.askStatus(ctx, others) {
		if reply.keepsUp() {
			current++
		} else {
			behind = append(behind, other)
		}
	}
	return refuseReadmission(len(others)+1, current, behind)
}

// refuseReadmission returns why one of the voters may not lose its vote, nil when
// it may: the others that are intact and keep up must be a quorum of the
// configuration with it. A server that is itself rejoining does not answer and is
// not counted.
func refuseReadmission(voters, current int, behind []compute.NodeID) error {
	need := raftconf.Quorum(voters)
	if current >= need {
		return nil
	}
	text := fmt.Sprintf("Of the %d voters beside it %d answer and keep up, %d have to", voters-1, current, need)
	if len(behind) > 0 {
		text += fmt.Sprintf("; not so: %v", behind)
	}
	return compute.Errorf(compute.CodeUnavailable, "%s.", text).Named("quorum_lost").Retry(readmitRetry)
}
