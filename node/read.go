package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/node/executor"
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

// Status returns what the answers' headers say.
func (r reader) Status() (index uint64, knownLeader bool, lastContact time.Duration) {
	_, known := r.cluster.Leader()
	return r.machine.View().Index(), known, r.cluster.LastContact()
}

// attemptSource tells the executor of this node's attempts.
type attemptSource struct {
	machine *fsm.FSM
	peer    peer

	mu     sync.Mutex
	recent recency
}

// peer is what an attemptSource asks of the cluster.
type peer interface {
	ID() compute.NodeID
	ReadIndex(ctx context.Context) (uint64, error)
	ContactAt() time.Duration
	Epoch() uint64
}

// Work returns the live attempts of this node once the state changed after
// index after. A replica that restarted, or that was cut off for so long that
// the cluster may have given its attempts up, catches up first: it must not
// start what was ended meanwhile.
func (s *attemptSource) Work(ctx context.Context, after uint64) (executor.Assigned, error) {
	view, err := s.machine.Wait(ctx, after+1)
	contact := s.peer.ContactAt()
	if err == nil && s.behind(contact) {
		view, err = s.catchUp(ctx, contact)
	}
	if err != nil {
		return executor.Assigned{}, err
	}
	return executor.Assigned{
		Work: view.Work(s.peer.ID()), Index: view.Index(), Life: view.ClusterEpoch(), Contact: contact,
	}, nil
}

// behind reports whether the replica may have missed what became of its
// attempts: there was no contact with the leader for a while.
func (s *attemptSource) behind(contact time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.behind(contact)
}

// catchUp returns a view that is not older than the call, and so than contact.
func (s *attemptSource) catchUp(ctx context.Context, contact time.Duration) (*fsm.View, error) {
	index, err := s.peer.ReadIndex(ctx)
	if err != nil {
		return nil, err
	}
	view, err := s.machine.Wait(ctx, index)
	if err != nil {
		return nil, err
	}
	if epoch := s.peer.Epoch(); view.ClusterEpoch() < epoch {
		return nil, fmt.Errorf("the state is of epoch %d of the cluster, this node in %d", view.ClusterEpoch(), epoch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent.caughtUp(contact)
	return view, nil
}

// reporter takes this node's word on its attempts to the state.
type reporter struct {
	proposer

	id compute.NodeID
}

// StartAttempt says that the user's process started.
func (r reporter) StartAttempt(ctx context.Context, start compute.AttemptStart) error {
	_, err := r.do(ctx, fsm.StartAttempt{Node: r.id, Start: start})
	return err
}

// FinishAttempt says how an attempt ended.
func (r reporter) FinishAttempt(ctx context.Context, outcome compute.Outcome) error {
	_, err := r.do(ctx, fsm.FinishAttempt{Node: r.id, Outcome: outcome})
	return err
}
