package fsm

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"berth/compute"
)

// selectionProfile is what a parent shows as its hardware profile.
const selectionProfile = "gpu_selection"

// prepareSelection makes e the parent of a GPU selection with its queue
// message: pending until the leader takes it.
func (s *state) prepareSelection(e *compute.Execution) *compute.Error {
	types := make([]string, 0, len(e.Selection.GPUTypes))
	for _, name := range e.Selection.GPUTypes {
		p, _, _, err := s.Resolve("gpu." + strings.TrimPrefix(strings.ToLower(name), "gpu."))
		if err != nil {
			return asRefusal(err)
		}
		if p.Count != 1 || p.MilliGPU != compute.WholeGPU {
			return compute.Errorf(compute.CodeInvalid,
				"gpu_types are names of GPU types, not %q", name).Named("gpu_types")
		}
		types = append(types, p.Kind())
	}
	slices.Sort(types)
	types = slices.Compact(types)
	if limit := s.meta.Settings.SelectionMax; limit > 0 && len(types) > limit {
		return compute.Errorf(compute.CodeInvalid,
			"at most %d GPU types are tried at once", limit).Named("gpu_types")
	}
	e.Profile, e.Status, e.Reason = selectionProfile, compute.StatusPending, compute.ReasonSelecting
	e.Selection = &compute.Selection{Objective: e.Selection.Objective, GPUTypes: types}
	return nil
}

// asRefusal returns the error that a view's method made.
func asRefusal(err error) *compute.Error {
	return compute.Errorf(compute.CodeOf(err), "%s", compute.MessageOf(err)).Named(detailOf(err))
}

// takeSelection takes a parent's queue message and creates its children.
func (s *state) takeSelection(c TakeSelection) Result {
	known, ok := s.executions.get(c.Parent)
	switch {
	case !ok || known.Kind != compute.KindSelection:
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	case known.Status != compute.StatusPending:
		return refuse(compute.CodeConflict, "already_taken",
			"the GPU selection was taken or has ended")
	}
	if refusal := s.checkChildren(known, c.Children); refusal != nil {
		return Result{Refusal: refusal}
	}
	parent := *known
	children, left, tooDear := s.childrenOf(&parent, c.Children)
	detail := joinDetail(c.Detail, strings.Join(slices.Concat(left, tooDear), "; "))
	if len(children) == 0 {
		reason := c.Reason
		switch {
		case len(tooDear) > 0:
			reason = compute.ReasonCredits // Of those that there are, none was paid for.
		case reason == compute.ReasonNone:
			reason = compute.ReasonNoCandidates
		}
		s.end(&parent, ending{compute.StatusFailed, reason, detail})
		return Result{Execution: parent.ID, Status: parent.Status}
	}
	s.startSelection(&parent, children, clip(detail))
	return Result{Execution: parent.ID, Status: parent.Status, Count: len(parent.Selection.Children)}
}

// checkChildren refuses children that no leader's loop would ask for.
func (s *state) checkChildren(parent *compute.Execution, children []Child) *compute.Error {
	limit := s.meta.Settings.SelectionMax
	if limit > 0 && len(children) > limit {
		return compute.Errorf(compute.CodeInvalid,
			"at most %d GPU types are tried at once", limit).Named("gpu_types")
	}
	seen := map[compute.ExecutionID]bool{parent.ID: true}
	for _, c := range children {
		if _, known := s.executions.get(c.ID); known || seen[c.ID] || c.ID.IsZero() {
			return compute.Errorf(compute.CodeConflict,
				"an execution with this identifier exists").Named("execution_exists")
		}
		seen[c.ID] = true
	}
	return nil
}

// childrenOf returns the children that can be created, by profile, and why
// the others cannot: they are gone, or too dear. The ceilings of the children
// together are within the parent's.
func (s *state) childrenOf(parent *compute.Execution, asked []Child,
) (children []*compute.Execution, left, tooDear []string) {
	for _, c := range asked {
		p, r, price, err := s.Resolve(c.Profile)
		if err != nil {
			left = append(left, c.Profile+": not available")
			continue
		}
		children = append(children, &compute.Execution{
			ID: c.ID, Org: parent.Org, User: parent.User, Key: parent.Key, Parent: parent.ID,
			Kind: compute.KindSubSelection, Status: compute.StatusQueued,
			Reason: compute.ReasonScheduling, Profile: p.String(), Request: r, Price: price,
			Bundle: parent.Bundle, FileName: parent.FileName, Imports: parent.Imports,
			JobType: parent.JobType, Timeout: parent.Timeout,
			DisconnectGrace: parent.DisconnectGrace, Priority: parent.Priority,
			Network: parent.Network, Tags: parent.Tags, StopGrace: parent.StopGrace,
			SubmitIndex: s.meta.Index, CreatedAt: s.meta.Now,
		})
	}
	children, tooDear = split(children, parent.MaxCredits)
	slices.SortFunc(children, func(a, b *compute.Execution) int {
		return cmp.Or(cmp.Compare(a.Profile, b.Profile), byExecution(a.ID, b.ID))
	})
	return children, left, tooDear
}

// split shares a ceiling of credits among executions: each gets its worst
// case if that is no more than an equal part of what the cheaper ones leave,
// else that part, and a time limit that it can pay. The parts never add up to
// more than the ceiling. Those whose part buys too little are left out, with
// the reason.
func split(children []*compute.Execution, ceiling compute.Credits,
) (kept []*compute.Execution, tooDear []string) {
	if ceiling == 0 {
		return children, nil
	}
	slices.SortFunc(children, func(a, b *compute.Execution) int {
		return cmp.Or(cmp.Compare(worst(a), worst(b)), byExecution(a.ID, b.ID))
	})
	for i, e := range children {
		e.MaxCredits = min(worst(e), ceiling/compute.Credits(len(children)-i))
		if worst(e) > 0 && (e.MaxCredits == 0 || !limitTime(e)) {
			tooDear = append(tooDear, e.Profile+": its share of max_credits buys less than a second")
			continue
		}
		ceiling -= e.MaxCredits
		kept = append(kept, e)
	}
	return kept, tooDear
}

// startSelection creates the children that the organization can pay for and
// makes the parent run; without any it fails.
func (s *state) startSelection(parent *compute.Execution, children []*compute.Execution, detail string) {
	selection := *parent.Selection
	selection.Taken = true
	s.releaseParent(parent)
	for _, e := range children {
		amount := firstHold(e)
		if s.lacks(e.Org, amount) != nil {
			detail = joinDetail(detail, e.Profile+": credits exhausted")
			continue
		}
		s.hold(e, amount, "sub-execution")
		s.putExecution(e)
		s.learn(e.Request)
		selection.Children = append(selection.Children, e.ID)
	}
	selection.Live = len(selection.Children)
	parent.Selection = &selection
	if selection.Live == 0 {
		s.end(parent, ending{compute.StatusFailed, compute.ReasonCredits, detail})
		return
	}
	parent.Status, parent.Reason, parent.Detail = compute.StatusRunning, compute.ReasonNone, clip(detail)
	parent.PlacedAt = s.meta.Now
	s.putExecution(parent)
}

// releaseParent gives back what was set aside for a parent: its children have
// holds of their own from here on.
func (s *state) releaseParent(parent *compute.Execution) {
	if parent.Held == 0 {
		return
	}
	s.post(compute.LedgerEntry{
		Org: parent.Org, Kind: compute.LedgerRelease, Amount: parent.Held,
		Execution: parent.ID, Note: "passed on to the sub-executions",
	})
	parent.Held = 0
}

// startParent records on a child's parent that code has started.
func (s *state) startParent(child *compute.Execution) {
	known, ok := s.executions.get(child.Parent)
	if !ok || !known.StartedAt.IsZero() {
		return
	}
	parent := *known
	parent.ExecletAt, parent.StartedAt = child.ExecletAt, child.StartedAt
	s.putExecution(&parent)
}

// endChild tells a parent that one of its children has ended. The last one
// ends the parent.
func (s *state) endChild(child *compute.Execution) {
	known, ok := s.executions.get(child.Parent)
	if !ok || known.Status.Terminal() {
		return
	}
	parent, selection := *known, *known.Selection
	selection.Live--
	parent.Selection = &selection
	parent.Billed += child.Billed
	parent.EndedAt = max(parent.EndedAt, child.EndedAt)
	parent.Ran = parent.Ran || child.Ran
	if selection.Live > 0 {
		s.putExecution(&parent)
		return
	}
	if parent.EndedAt > parent.StartedAt && !parent.StartedAt.IsZero() {
		parent.Duration = parent.EndedAt.Sub(parent.StartedAt)
	}
	s.end(&parent, judge(&parent, s.Children(parent.ID)))
}

// judge returns how a parent ends by how its children ended.
func judge(parent *compute.Execution, children []*compute.Execution) ending {
	var n [compute.Statuses]int
	for _, c := range children {
		n[c.Status]++
	}
	stopped := n[compute.StatusAborted] + n[compute.StatusCancelled]
	switch {
	case parent.Stop != compute.StopNone && stopped > 0:
		v := stopEnding(parent.Stop)
		v.detail = parent.Detail
		return v
	case n[compute.StatusCompleted] > 0:
		return ending{compute.StatusCompleted, compute.ReasonNone, parent.Detail}
	case n[compute.StatusSystemFailure] == len(children):
		return ending{compute.StatusSystemFailure, compute.ReasonChildrenFailed, parent.Detail}
	case n[compute.StatusAborted] == len(children):
		return ending{compute.StatusAborted, compute.ReasonAborted, parent.Detail}
	case stopped == len(children):
		return ending{compute.StatusCancelled, compute.ReasonStopped, parent.Detail}
	}
	return ending{compute.StatusFailed, compute.ReasonChildrenFailed, parent.Detail}
}

// stopSelection stops a parent: at once while it is pending, else by stopping
// its children, the last of which ends it.
func (s *state) stopSelection(known *compute.Execution, how compute.Stop) {
	parent := *known
	parent.Stop = max(parent.Stop, how)
	if parent.Status == compute.StatusPending {
		s.end(&parent, stopEnding(how))
		return
	}
	s.putExecution(&parent)
	for _, c := range s.Children(parent.ID) {
		if !c.Status.Terminal() {
			s.stop(c, how, compute.ReasonParentEnded)
		}
	}
}

// detailOf returns the stable name of an error's case.
func detailOf(err error) string {
	if e, ok := errors.AsType[*compute.Error](err); ok {
		return e.Detail
	}
	return ""
}
