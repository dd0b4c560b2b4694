package worker

import (
	"context"
	"slices"

	"berth/compute"
	"berth/node/logs"
)

// Output answers readers of output on a worker. It knows the attempts on its
// disk. It knows whether an attempt has ended once it has seen a state that is
// new enough.
type Output struct {
	Self  compute.NodeID
	Store *logs.Store
	Own   *Assignments
	Want  uint64 // The index at which the reader saw the attempt live.
}

// Attempts is logs.State.
func (o Output) Attempts(_ context.Context, id compute.ExecutionID) ([]compute.Attempt, *logs.Final, error) {
	work, index := o.Own.Current()
	live := slices.IndexFunc(work, func(w compute.Work) bool { return w.Attempt.Execution == id })
	if live < 0 && index < o.Want {
		return nil, nil, nil // Its attempt may be on its way to this node.
	}
	var attempts []compute.Attempt
	for _, epoch := range o.Store.Epochs(id) {
		attempts = append(attempts, compute.Attempt{Execution: id, Epoch: epoch, Node: o.Self, Ended: true})
	}
	if live < 0 {
		if len(attempts) == 0 {
			return nil, new(logs.Final), nil // It has ended, and its output is gone.
		}
		return attempts, nil, nil
	}
	now := *work[live].Attempt
	attempts = slices.DeleteFunc(attempts, func(a compute.Attempt) bool { return a.Epoch >= now.Epoch })
	return append(attempts, now), nil, nil
}

// Changed is logs.State.
func (Output) Changed() <-chan struct{} { return nil }

// Up reports that a node is up. Only this node has output here.
func (Output) Up(compute.NodeID) bool { return true }
