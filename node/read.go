package node

import (
	"context"
	"time"

	"berth/cluster"
	"berth/fsm"
)

// reader reads the state for the API.
type reader struct {
	machine *fsm.FSM
	cluster *cluster.Cluster
}

// Read returns a view that holds everything acknowledged before the call.
func (r reader) Read(ctx context.Context) (*fsm.View, error) {
	index, err := r.cluster.ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	return r.machine.Wait(ctx, index)
}

// Stale returns the newest local view and how old it may be.
func (r reader) Stale() (view *fsm.View, lastContact time.Duration, knownLeader bool) {
	_, known := r.cluster.Leader()
	return r.machine.View(), r.cluster.LastContact(), known
}

// Wait returns the local view once its index is above after.
func (r reader) Wait(ctx context.Context, after uint64) (*fsm.View, error) {
	return r.machine.Wait(ctx, after+1)
}

// Status returns the values for the headers of answers.
func (r reader) Status() (index uint64, knownLeader bool, lastContact time.Duration) {
	_, known := r.cluster.Leader()
	return r.machine.View().Index(), known, r.cluster.LastContact()
}

// reader returns the reader of the state.
func (n *Node) reader() reader { return reader{n.machine, n.cluster} }
