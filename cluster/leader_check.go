package cluster

import (
	"context"
	"fmt"

	"github.com/hashicorp/raft"

	"berth/cluster/raftconf"
	"berth/compute"
	"berth/fault"
)

// confirmLeader asks the voters for their terms, in messages sent after the call,
// and returns nil when a majority, this node included, is in the given term. A
// voter in a newer term ends the check.
func (c reader) confirmLeader(ctx context.Context, term uint64) error {
	if fault.Planted(fault.VerifyLeader) { // VerifyLeader counts acknowledgements that were sent before the call.
		return c.raft.VerifyLeader().Error()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var others []compute.NodeID
	voters, agreed := 0, 0
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if s.ID == raftconf.ServerID(c.id) {
			agreed++
			continue
		}
		others = append(others, raftconf.NodeOf(s.ID))
	}
	answers := make(chan status, len(others)) // Buffered for all, so that late answers never block.
	for _, id := range others {
		c.work.Go(func() {
			s, err := c.healthReport.status(ctx, id)
			if err != nil {
				s = status{} // Term 0 never agrees.
			}
			answers <- s
		})
	}
	for range others {
		if 2*agreed > voters {
			break
		}
		switch s := <-answers; {
		case s.Term > term:
			return fmt.Errorf("a voter is in term %d, this leader in %d", s.Term, term)
		case s.Term == term:
			agreed++
		}
	}
	if 2*agreed <= voters || c.raft.CurrentTerm() != term {
		return fmt.Errorf("%d of %d voters are in term %d", agreed, voters, term)
	}
	return nil
}
