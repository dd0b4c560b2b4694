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

// handleRejoin takes the vote of a server whose replica is damaged. Any server
// may be asked; the leader decides.
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
		c.logger.Warn("server with a damaged replica not readmitted", "node", req.Node, "err", err)
		return nil, err
	}
	c.logger.Warn("server with a damaged replica readmitted, without a vote", "node", req.Node,
		"term", answer.Term, "index", answer.Index)
	return c.codec.Marshal(answer), nil
}

// readmit sees to it that the server has no vote, by a configuration that is
// committed, and returns the term of this leader in which it was and an entry
// that is not before it. It can be repeated.
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
			c.logger.Info("vote not taken yet", "node", id, "err", err)
		}
	}
	return rejoinAnswer{}, compute.Errorf(compute.CodeUnavailable,
		"The configuration changes all the time.").Retry(readmitRetry)
}

// confirmConfiguration returns nil once the configuration that this leader had
// at the call is committed, in its term. One that is only in its log may be
// overruled, and the vote with it.
func (c rejoiner) confirmConfiguration(term uint64) error {
	err := c.raft.Barrier(changeTimeout).Error()
	if err != nil || c.terms.ready() != term || c.raft.CurrentTerm() != term {
		return errNoLeader()
	}
	return nil
}

// mayTakeVote asks the voters but the one that is to lose its vote, and refuses
// unless they can go on without it.
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

// refuseReadmission returns why one of the voters may not lose its vote when
// current of the others are intact and keep up, nil when it may: these have to
// be a quorum of the configuration with it. One that is itself rejoining does
// not answer, and so is not counted.
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
