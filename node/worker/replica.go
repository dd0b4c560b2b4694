package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/executor"
)

// ReplicaSource reads a server's own attempts in its replica.
type ReplicaSource struct {
	machine *fsm.FSM
	peer    Peer

	mu     sync.Mutex
	recent recency
}

// Peer has the parts of the cluster that a ReplicaSource needs.
type Peer interface {
	ID() compute.NodeID
	ReadIndex(ctx context.Context) (uint64, error)
	ContactAt() time.Duration
	Epoch() uint64
}

// NewReplicaSource returns the source of a server's own attempts.
func NewReplicaSource(machine *fsm.FSM, peer Peer) *ReplicaSource {
	return &ReplicaSource{machine: machine, peer: peer}
}

// Work returns the live attempts of this node once the state changed after
// index after. A replica that restarted, or that was cut off for so long that
// the cluster may have given its attempts up, catches up first: it must not
// start what was ended meanwhile.
func (s *ReplicaSource) Work(ctx context.Context, after uint64) (executor.Assigned, error) {
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
func (s *ReplicaSource) behind(contact time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.behind(contact)
}

// catchUp returns a view that is not older than the call, and so than contact.
func (s *ReplicaSource) catchUp(ctx context.Context, contact time.Duration) (*fsm.View, error) {
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

// Propose proposes a command. It returns the result of the state and the index
// of the entry; a refusal is the error.
type Propose func(ctx context.Context, cmd command.Command) (command.Result, uint64, error)

// ReplicaReporter proposes the reports of a node on its attempts.
type ReplicaReporter struct {
	Node    compute.NodeID
	Propose Propose
}

// StartAttempt reports that the user's process started.
func (r ReplicaReporter) StartAttempt(ctx context.Context, start compute.AttemptStart) error {
	_, _, err := r.Propose(ctx, command.StartAttempt{Node: r.Node, Start: start})
	return err
}

// FinishAttempt reports how an attempt ended.
func (r ReplicaReporter) FinishAttempt(ctx context.Context, outcome compute.Outcome) error {
	_, _, err := r.Propose(ctx, command.FinishAttempt{Node: r.Node, Outcome: outcome})
	// A server that cannot record these fields gets the outcome without them: the end must not wait.
	if compute.NeedsUpgrade(err) && outcome.Series != nil {
		outcome.Series = nil
		_, _, err = r.Propose(ctx, command.FinishAttempt{Node: r.Node, Outcome: outcome})
	}
	if compute.NeedsUpgrade(err) && outcome.Outputs != nil {
		outcome.Outputs = nil
		_, _, err = r.Propose(ctx, command.FinishAttempt{Node: r.Node, Outcome: outcome})
	}
	return err
}

// SetReady reports whether the code of an attempt is ready.
func (r ReplicaReporter) SetReady(ctx context.Context, readiness compute.Readiness) error {
	_, _, err := r.Propose(ctx, command.SetReady{
		Node: r.Node, Execution: readiness.Execution, Epoch: readiness.Epoch, Ready: readiness.Ready,
	})
	return err
}
