package cluster

import (
	"context"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
)

// Health has the leader's findings about the nodes.
type Health struct {
	// Diverged are the servers whose state differed from the majority's in the last
	// comparison; all compared servers if Unclear, when no state has a majority.
	Diverged []compute.NodeID `cbor:"1,keyasint,omitempty"`
	Unclear  bool             `cbor:"2,keyasint,omitempty"`
	Clocks   []NodeClock      `cbor:"3,keyasint,omitempty"`
}

// NodeClock is by how much a node's clock is ahead of the cluster's time.
type NodeClock struct {
	Node  compute.NodeID `cbor:"1,keyasint"`
	Ahead time.Duration  `cbor:"2,keyasint"`
}

// Health returns the leader's findings. Any server may call it.
func (c *Cluster) Health(ctx context.Context) (Health, error) {
	var found Health
	if c.terms.ready() != 0 {
		return c.healthReport.ownHealth(), nil
	}
	leader, known := c.Leader()
	if !known || leader == c.id {
		return found, errNoLeader()
	}
	data, err := c.Call(ctx, leader, methodHealth, nil)
	if err != nil {
		return found, err
	}
	err = c.codec.Unmarshal(data, &found)
	return found, err
}

// healthReport answers with the leader's findings about the nodes.
type healthReport struct{ *Cluster }

func (c healthReport) ownHealth() Health {
	found := c.comparer.Last()
	return Health{Diverged: found.Diverged, Unclear: found.Unclear, Clocks: c.heartbeats.clocks()}
}

func (c healthReport) handleHealth(context.Context, rpc.Peer, []byte) ([]byte, error) {
	if c.terms.ready() == 0 {
		return nil, errNoLeader()
	}
	return c.codec.Marshal(c.ownHealth()), nil
}
