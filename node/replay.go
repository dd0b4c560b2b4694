package node

import (
	"context"
	"sync"

	"berth/cluster"
	"berth/compute"
	"berth/fsm"
	"berth/scheduler"
)

// past recomputes what was decided. The node goes on meanwhile, with a second
// state beside its own; so one question is answered at a time.
type past struct {
	cluster *cluster.Cluster

	turn sync.Mutex
}

// replay computes the plans of entry index again, each from the state that it
// was computed from, with the best nodes for each execution.
func (p *past) replay(ctx context.Context, index uint64, best int) ([]compute.Replay, error) {
	entry, err := p.cluster.Entry(index)
	if err != nil {
		return nil, err
	}
	plans, err := fsm.PlansOf(entry)
	if err != nil {
		return nil, err
	}
	if len(plans) == 0 {
		return nil, compute.Errorf(compute.CodeInvalid,
			"Entry %d holds no plan of the scheduler; berth explain names the entry that placed an execution.", index).
			Named("no_plan")
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	var out []compute.Replay
	for _, plan := range plans {
		again, err := p.again(ctx, index, plan, best)
		if err != nil {
			return nil, err
		}
		out = append(out, again)
	}
	return out, nil
}

// again computes one plan again, and says what the state made of it.
func (p *past) again(ctx context.Context, index uint64, plan fsm.CommitPlan, best int) (compute.Replay, error) {
	machine := fsm.New()
	if err := p.cluster.Rebuild(ctx, machine, plan.ViewIndex); err != nil {
		return compute.Replay{}, err
	}
	computed, decisions := scheduler.Trace(machine.View(), best)
	out := compute.Replay{
		Index: index, ViewIndex: plan.ViewIndex, Term: plan.Term, Waiting: len(plan.Plan.Waiting),
		Recorded: fsm.HashPlan(plan.Plan), Computed: fsm.HashPlan(computed), Decisions: decisions,
	}
	if err := p.cluster.Advance(ctx, machine, plan.ViewIndex, index-1); err != nil {
		return out, err
	}
	before := machine.View()
	if err := p.cluster.Advance(ctx, machine, index-1, index); err != nil {
		return out, err
	}
	for i := range out.Decisions {
		if d := &out.Decisions[i]; !d.Node.IsZero() {
			d.Applied, d.Skipped = became(before, machine.View(), d.Execution)
		}
	}
	return out, nil
}

// became says whether the newest entry of after placed an execution, and
// otherwise why not.
func became(before, after *fsm.View, id compute.ExecutionID) (applied bool, why string) {
	for _, a := range after.Attempts(id) {
		if a.PlaceIndex == after.Index() {
			return true, ""
		}
	}
	was, ok := before.AnyExecution(id)
	is, still := after.AnyExecution(id)
	switch {
	case !ok || !still:
		return false, "the execution was gone"
	case was.Status != compute.StatusQueued:
		return false, "the execution was " + was.Status.String() + " by then"
	case is.Reason == compute.ReasonOrgConcurrency:
		return false, "its organization was at its limit"
	}
	return false, "the node no longer had the room"
}

// whatIf answers what the scheduler would do on other nodes: with the state
// after entry index, with view when index is 0.
func (p *past) whatIf(ctx context.Context, view *fsm.View, index uint64, change compute.WhatIf,
) (compute.Forecast, *fsm.View, error) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if index > 0 {
		if _, err := p.cluster.Entry(index); err != nil {
			return compute.Forecast{}, nil, err
		}
		machine := fsm.New()
		if err := p.cluster.Rebuild(ctx, machine, index); err != nil {
			return compute.Forecast{}, nil, err
		}
		view = machine.View()
	}
	return scheduler.WhatIf(view, change), view, nil
}
