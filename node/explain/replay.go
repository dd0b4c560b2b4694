package explain

import (
	"context"
	"slices"

	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/loop"
	"berth/scheduler"
	"berth/scheduler/forecast"
)

// History recomputes what was decided. The node goes on meanwhile, with a second
// state beside its own; so one question is answered at a time.
type History struct {
	replica func() *replica.Replica
	machine func() (*fsm.FSM, error) // Makes a second state machine that skips what the replica skips.
	limiter *loop.FairLimiter[compute.OrgID]
}

// NewHistory returns the history of a replica. machine makes a second state machine
// that leaves out what the replica leaves out.
func NewHistory(replica func() *replica.Replica, machine func() (*fsm.FSM, error)) *History {
	return &History{replica: replica, machine: machine, limiter: loop.NewFairLimiter[compute.OrgID](1)}
}

// Replay computes the plans of entry index again, each from the state that it
// was computed from, with the best nodes for each execution.
func (h *History) Replay(ctx context.Context, index uint64, best int) ([]compute.Replay, error) {
	entry, err := h.replica().Entry(index)
	if err != nil {
		return nil, err
	}
	plans, err := command.PlansOf(entry)
	if err != nil {
		return nil, err
	}
	if len(plans) == 0 {
		return nil, compute.Errorf(compute.CodeInvalid,
			"Entry %d holds no plan of the scheduler; berth explain names the entry that placed an execution.", index).
			Named("no_plan")
	}
	done, err := h.limiter.Take(ctx, compute.OrgID{})
	if err != nil {
		return nil, err
	}
	defer done()
	var out []compute.Replay
	for _, plan := range plans {
		again, err := h.again(ctx, index, plan, best)
		if err != nil {
			return nil, err
		}
		out = append(out, again)
	}
	return out, nil
}

// rebuild returns a second state as it was after entry index, without what this
// server leaves out.
func (h *History) rebuild(ctx context.Context, index uint64) (*fsm.FSM, error) {
	machine, err := h.machine()
	if err != nil {
		return nil, err
	}
	return machine, h.replica().Rebuild(ctx, machine, index)
}

// again computes one plan again, and returns how the state decided about it.
func (h *History) again(ctx context.Context, index uint64, plan command.CommitPlan, best int) (compute.Replay, error) {
	machine, err := h.rebuild(ctx, plan.ViewIndex)
	if err != nil {
		return compute.Replay{}, err
	}
	computed, decisions, err := scheduler.Trace(ctx, machine.View(), best)
	if err != nil {
		return compute.Replay{}, err
	}
	out := compute.Replay{
		Index: index, ViewIndex: plan.ViewIndex, Term: plan.Term, Waiting: len(plan.Plan.Waiting),
		Recorded: command.HashPlan(plan.Plan), Computed: command.HashPlan(computed), Decisions: decisions,
	}
	if err := h.replica().Advance(ctx, machine, plan.ViewIndex, index-1); err != nil {
		return out, err
	}
	before := machine.View()
	if err := h.replica().Advance(ctx, machine, index-1, index); err != nil {
		return out, err
	}
	for i := range out.Decisions {
		if d := &out.Decisions[i]; !d.Node.IsZero() {
			d.Applied, d.Skipped = outcome(before, machine.View(), d)
		}
	}
	return out, nil
}

// outcome says whether the newest entry of after did what d decided, and
// otherwise why not. The state asks for quotas first, and notes which refused.
func outcome(before, after *fsm.View, d *compute.Decision) (applied bool, why string) {
	for _, a := range after.Attempts(d.Execution) {
		if a.PlaceIndex == after.Index() {
			return true, ""
		}
	}
	was, ok := before.AnyExecution(d.Execution)
	is, still := after.AnyExecution(d.Execution)
	switch {
	case !ok || !still:
		return false, "the execution was gone"
	case was.Status != compute.StatusQueued:
		return false, "the execution was " + was.Status.String() + " by then"
	}
	if why := overQuota(is.Reason); why != "" && (was.Reason != is.Reason || refused(after, is)) {
		return false, why
	}
	n, known := after.Node(d.Node)
	switch {
	case !known:
		return false, "the node was gone"
	case n.State != compute.NodeUp:
		return false, "the node was " + n.State.String() + " by then"
	case n.Drained:
		return false, "the node was drained by then"
	}
	return false, "the node no longer had the capacity"
}

// overQuota explains a refusal of the state for a reason, "" if the reason is
// not about a quota.
func overQuota(reason compute.Reason) string {
	of := map[compute.Reason]string{
		compute.ReasonOrgConcurrency: "its organization was at its limit of attempts",
		compute.ReasonKeyConcurrency: "its API key was at its limit of attempts",
		compute.ReasonTagConcurrency: "one of its tags was at its limit of attempts",
		compute.ReasonQuotaGPUs:      "a quota of GPUs was used up",

		compute.ReasonProfileConcurrency: "its hardware profile was at its limit of attempts",
		compute.ReasonProfileDenied:      "its organization may not use its hardware profile",
	}
	return of[reason]
}

// refused reports whether a quota refuses e for the reason that it waits for:
// one that it had before says nothing of the newest entry.
func refused(view *fsm.View, e *compute.Execution) bool {
	return slices.ContainsFunc(view.Quotas(e.Org), func(q compute.Quota) bool {
		return q.AppliesTo(e) && q.Refuses(view.Load(q), e) == e.Reason
	})
}

// WhatIf answers what the scheduler would do on other nodes: with the state
// after entry index, with view when index is 0. The question is put to the
// state that it is about.
func (h *History) WhatIf(
	ctx context.Context, view *fsm.View, index uint64, question func(*fsm.View) (compute.WhatIf, error),
) (compute.Forecast, *fsm.View, error) {
	done, err := h.limiter.Take(ctx, compute.OrgID{})
	if err != nil {
		return compute.Forecast{}, nil, err
	}
	defer done()
	if index > 0 {
		if _, err := h.replica().Entry(index); err != nil {
			return compute.Forecast{}, nil, err
		}
		machine, err := h.rebuild(ctx, index)
		if err != nil {
			return compute.Forecast{}, nil, err
		}
		view = machine.View()
	}
	change, err := question(view)
	if err != nil {
		return compute.Forecast{}, nil, err
	}
	found, err := forecast.WhatIf(ctx, view, change)
	return found, view, err
}
