package fsm

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"berth/compute"
	"berth/fsm/charge"
	"berth/fsm/command"
)

// selectionProfile is the hardware profile that a parent shows.
const selectionProfile = "gpu_selection"

// prepareSelection makes e the parent of a GPU selection with its queue
// message: pending until the leader takes it.
func (s *selection) prepareSelection(e *compute.Execution) *compute.Error {
	types := make([]string, 0, len(e.Selection.GPUTypes))
	for _, name := range e.Selection.GPUTypes {
		p, _, _, err := s.view.Resolve("gpu." + strings.TrimPrefix(strings.ToLower(name), "gpu."))
		if err != nil {
			return asRefusal(err)
		}
		if p.GPUType == compute.AnyGPU || p.Count != 1 || p.MilliGPU != compute.WholeGPU {
			return compute.Errorf(compute.CodeInvalid,
				"gpu_types are names of GPU types, not %q", name).Named("gpu_types")
		}
		types = append(types, p.Kind())
	}
	asked := e.Selection
	switch {
	case asked.Repeats < 0 || asked.Repeats > compute.MaxRepeats:
		return compute.Errorf(compute.CodeInvalid,
			"repeats is 1 to %d", compute.MaxRepeats).Named("repeats")
	case asked.Deadline < 0 || asked.Deadline > compute.MaxDeadline:
		return compute.Errorf(compute.CodeInvalid,
			"deadline_seconds is 1 to %d", int(compute.MaxDeadline.Seconds())).Named("deadline_seconds")
	}
	slices.Sort(types)
	types = slices.Compact(types)
	if refusal := s.view.admitTypes(e.Org, types); refusal != nil {
		return refusal
	}
	if limit := s.view.meta.Settings.SelectionMax; limit > 0 && len(types) > limit {
		return compute.Errorf(compute.CodeInvalid,
			"at most %d GPU types are tried at once", limit).Named("gpu_types")
	}
	offered := *e
	if refusal := s.execution.askOffers(&offered); refusal != nil {
		return refusal
	}
	e.Profile, e.Status, e.Reason = selectionProfile, compute.StatusPending, compute.ReasonSelecting
	e.Selection = &compute.Selection{
		Objective: asked.Objective, GPUTypes: types,
		Repeats: asked.Repeats, Deadline: asked.Deadline, Complete: asked.Complete,
	}
	return nil
}

// admitTypes refuses a GPU selection of types that its organization may not use, any of them:
// those that it names, or all of known nodes.
func (v *View) admitTypes(org compute.OrgID, types []string) (refusal *compute.Error) {
	if len(types) == 0 {
		types = v.GPUTypes()
	}
	for _, kind := range types {
		if refusal = v.admitProfile(org, "gpu."+kind); refusal == nil {
			return nil
		}
	}
	return refusal
}

// asRefusal returns the error that a view's method made.
func asRefusal(err error) *compute.Error {
	return compute.Errorf(compute.CodeOf(err), "%s", compute.MessageOf(err)).Named(detailOf(err))
}

// takeSelection takes a parent's queue message and creates its children.
func (s *selection) takeSelection(c command.TakeSelection) command.Result {
	known, ok := s.view.executions.Get(c.Parent)
	switch {
	case !ok || known.Kind != compute.KindSelection:
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	case known.Status != compute.StatusPending:
		return refuse(compute.CodeConflict, "already_taken",
			"the GPU selection was taken or has ended")
	}
	if refusal := s.checkChildren(known, c.Children); refusal != nil {
		return command.Result{Refusal: refusal}
	}
	parent := *known
	children, left, tooDear := s.childrenOf(&parent, c.Children)
	detail := joinDetail(c.Detail, strings.Join(slices.Concat(left, tooDear), "; "))
	if len(children) == 0 {
		reason := c.Reason
		switch {
		case len(tooDear) > 0:
			reason = compute.ReasonCredits // Candidates exist, but the credits pay for none.
		case reason == compute.ReasonNone:
			reason = compute.ReasonNoCandidates
		}
		s.execution.end(&parent, ending{compute.StatusFailed, reason, detail})
		return command.Result{Execution: parent.ID, Status: parent.Status}
	}
	s.startSelection(&parent, children, clip(detail))
	return command.Result{Execution: parent.ID, Status: parent.Status, Count: len(parent.Selection.Children)}
}

// checkChildren refuses children that no leader's loop would ask for.
func (s *selection) checkChildren(parent *compute.Execution, children []command.Child) *compute.Error {
	limit := s.view.meta.Settings.SelectionMax
	if limit > 0 && len(children) > limit*parent.Selection.Runs() {
		return compute.Errorf(compute.CodeInvalid,
			"at most %d GPU types are tried at once", limit).Named("gpu_types")
	}
	seen := map[compute.ExecutionID]bool{parent.ID: true}
	for _, c := range children {
		if s.view.executions.Has(c.ID) || seen[c.ID] || c.ID.IsZero() {
			return compute.Errorf(compute.CodeConflict,
				"an execution with this identifier exists").Named("execution_exists")
		}
		seen[c.ID] = true
	}
	return nil
}

// childrenOf returns the children that can be created, by profile and repeat,
// and why the others cannot: they are gone, or too dear. The ceilings of the
// children together are within the parent's. One that does not pay for the
// worst case of every repeat pays for fewer repeats, rather than for shorter
// ones.
func (s *selection) childrenOf(parent *compute.Execution, asked []command.Child,
) (children []*compute.Execution, left, tooDear []string) {
	var once compute.Credits // The worst case of one run of each profile.
	for _, c := range asked {
		p, r, price, err := s.view.Resolve(c.Profile)
		if err != nil {
			left = append(left, c.Profile+": not available")
			continue
		}
		if s.view.Denies(parent.Org, p.String()) {
			left = append(left, c.Profile+": the organization may not use it")
			continue
		}
		if s.view.needCapability(p, parent.MinCapability) != nil {
			left = append(left, c.Profile+": too low a compute capability")
			continue
		}
		if s.view.needVRAM(p, &r, parent.MinVRAMMiB) != nil {
			left = append(left, c.Profile+": too little GPU memory")
			continue
		}
		e := &compute.Execution{
			ID: c.ID, Org: parent.Org, User: parent.User, Key: parent.Key, Parent: parent.ID,
			Kind: compute.KindSubSelection, Status: compute.StatusQueued,
			Reason: compute.ReasonScheduling, Profile: p.String(), Request: r, Price: price,
			Bundle: parent.Bundle, FileName: parent.FileName, Imports: parent.Imports, ImportFiles: parent.ImportFiles,
			JobType: parent.JobType, Timeout: parent.Timeout,
			DisconnectGrace: parent.DisconnectGrace, Priority: parent.Priority,
			Network: parent.Network, Tags: parent.Tags, StopGrace: parent.StopGrace,
			SubmitIndex: s.view.meta.Index, CreatedAt: s.view.meta.Now, Repeat: max(c.Repeat, 1),
			MaxRetries: s.execution.retriesOfRuns(parent), MinVRAMMiB: parent.MinVRAMMiB, Name: parent.Name, Files: parent.Files,
			MinCapability: parent.MinCapability,
			Volumes:       parent.Volumes, ScratchMiB: parent.ScratchMiB, ScratchMemory: parent.ScratchMemory,
			Storage: parent.Storage, OutputsPrefix: parent.OutputsPrefix,
			Environment: parent.Environment,
		}
		if s.execution.askOffers(e) != nil {
			left = append(left, c.Profile+": no node has its volumes and scratch space")
			continue
		}
		if e.Repeat == 1 {
			once += charge.Worst(e)
		}
		children = append(children, e)
	}
	left = slices.Compact(left)
	if runs := paidRepeats(parent, once); runs < parent.Selection.Runs() {
		children = slices.DeleteFunc(children, func(e *compute.Execution) bool { return e.Repeat > runs })
		left = append(left, fmt.Sprintf("max_credits pays for %d of %d runs of each type",
			runs, parent.Selection.Runs()))
	}
	children, tooDear = split(children, parent.MaxCredits)
	number(children)
	return children, left, tooDear
}

// paidRepeats returns how many runs of each type a parent's ceiling pays for
// in the worst case, at least one.
func paidRepeats(parent *compute.Execution, once compute.Credits) int {
	runs := parent.Selection.Runs()
	if parent.MaxCredits == 0 || once == 0 {
		return runs
	}
	return int(max(min(parent.MaxCredits/once, compute.Credits(runs)), 1))
}

// number sorts children by profile and gives the runs of each the numbers 1,
// 2, 3, ...: one after the other, so that all but the first wait.
func number(children []*compute.Execution) {
	slices.SortFunc(children, byRun)
	for i, e := range children {
		e.Repeat = 1
		if i > 0 && children[i-1].Profile == e.Profile {
			e.Repeat = children[i-1].Repeat + 1
			e.Status, e.Reason = compute.StatusPending, compute.ReasonEarlierRun
		}
	}
}

func byRun(a, b *compute.Execution) int {
	return cmp.Or(cmp.Compare(a.Profile, b.Profile), cmp.Compare(a.Repeat, b.Repeat), byExecution(a.ID, b.ID))
}

// split shares a ceiling of credits among executions, the cheapest first. Each gets its
// worst case, but at most an equal part of the credits that are left. Its time limit is
// shortened to the time that its part pays for. The parts never add up to more than the
// ceiling. Executions whose part buys too little are left out, with the reason.
func split(children []*compute.Execution, ceiling compute.Credits,
) (kept []*compute.Execution, tooDear []string) {
	if ceiling == 0 {
		return children, nil
	}
	slices.SortFunc(children, func(a, b *compute.Execution) int {
		return cmp.Or(cmp.Compare(charge.Worst(a), charge.Worst(b)), byRun(a, b))
	})
	for i, e := range children {
		e.MaxCredits = min(charge.Worst(e), ceiling/compute.Credits(len(children)-i))
		if charge.Worst(e) > 0 && (e.MaxCredits == 0 || !limitTime(e)) {
			tooDear = append(tooDear, e.Profile+": its share of max_credits buys less than a second")
			continue
		}
		ceiling -= e.MaxCredits
		kept = append(kept, e)
	}
	return kept, slices.Compact(tooDear)
}

// startSelection creates the children that the organization can pay for and
// makes the parent run; without any it fails.
func (s *selection) startSelection(parent *compute.Execution, children []*compute.Execution, detail string) {
	selection := *parent.Selection
	selection.Taken = true
	s.releaseParent(parent)
	poor := map[string]bool{} // Profiles whose runs so far are all that is paid for.
	// The first runs of all profiles come before the second ones.
	slices.SortFunc(children, func(a, b *compute.Execution) int {
		return cmp.Or(cmp.Compare(a.Repeat, b.Repeat), byRun(a, b))
	})
	var kept []*compute.Execution
	for _, e := range children {
		amount := charge.FirstHold(e)
		if poor[e.Profile] {
			continue
		}
		if s.money.lacks(e, amount) != nil {
			poor[e.Profile] = true
			detail = joinDetail(detail, e.Profile+": credits exhausted"+afterRuns(e.Repeat-1))
			continue
		}
		s.money.hold(e, amount, "sub-execution")
		s.execution.putExecution(e)
		s.statistics.learn(e.Request)
		kept = append(kept, e)
	}
	slices.SortFunc(kept, byRun)
	for _, e := range kept {
		selection.Children = append(selection.Children, e.ID)
	}
	selection.Live = len(selection.Children)
	parent.Selection = &selection
	if selection.Live == 0 {
		s.execution.end(parent, ending{compute.StatusFailed, compute.ReasonCredits, detail})
		return
	}
	parent.Status, parent.Reason, parent.Detail = compute.StatusRunning, compute.ReasonNone, clip(detail)
	parent.PlacedAt = s.view.meta.Now
	s.execution.putExecution(parent)
}

// afterRuns says how many runs of a profile credits were there for.
func afterRuns(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " after 1 run"
	}
	return fmt.Sprintf(" after %d runs", n)
}

// releaseParent gives back the hold of a parent: its children have holds of their own
// from here on.
func (s *selection) releaseParent(parent *compute.Execution) {
	if parent.Held == 0 {
		return
	}
	s.money.post(compute.LedgerEntry{
		Org: parent.Org, Kind: compute.LedgerRelease, Amount: parent.Held,
		Execution: parent.ID, Note: "passed on to the sub-executions",
	})
	parent.Held = 0
	if known, ok := s.view.executions.Get(parent.ID); ok {
		released := *known
		released.Held = 0
		s.execution.putExecution(&released) // Ceilings count holds, and the children's holds come next.
	}
}

// startParent records on a child's parent that code has started.
func (s *selection) startParent(child *compute.Execution) {
	known, ok := s.view.executions.Get(child.Parent)
	if !ok || !known.StartedAt.IsZero() {
		return
	}
	parent := *known
	parent.ExecletAt, parent.StartedAt = child.ExecletAt, child.StartedAt
	s.execution.putExecution(&parent)
}

// endChild records in a parent that one of its children has ended. The last one
// ends the parent.
func (s *selection) endChild(child *compute.Execution) {
	known, ok := s.view.executions.Get(child.Parent)
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
		s.execution.putExecution(&parent)
		s.nextRun(&parent, child)
		return
	}
	if parent.EndedAt > parent.StartedAt && !parent.StartedAt.IsZero() {
		parent.Duration = parent.EndedAt.Sub(parent.StartedAt)
	}
	s.execution.end(&parent, judge(&parent, s.view.Children(parent.ID)))
}

// nextRun decides on the run behind one that has ended. It starts when that one
// completed or failed for our reasons. Code that failed would fail again, and a
// stopped candidate stays stopped.
func (s *selection) nextRun(parent, ended *compute.Execution) {
	known, ok := s.runOf(parent, ended.Profile, ended.Repeat+1)
	if !ok || known.Status != compute.StatusPending {
		return
	}
	e := *known
	switch ended.Status {
	case compute.StatusCompleted, compute.StatusSystemFailure:
		e.Status, e.Reason = compute.StatusQueued, compute.ReasonScheduling
		s.execution.putExecution(&e)
	case compute.StatusAborted, compute.StatusCancelled:
		s.execution.end(&e, ending{ended.Status, ended.Reason, ended.Detail})
	default:
		s.execution.end(&e, ending{
			compute.StatusCancelled, compute.ReasonStoppedEarly,
			"not repeated: the run before it " + ended.Status.String() + " (" + ended.Reason.String() + ")",
		})
	}
}

// runOf returns one run of a profile among a parent's children.
func (s *selection) runOf(parent *compute.Execution, profile string, repeat int) (*compute.Execution, bool) {
	for _, id := range parent.Selection.Children {
		e, ok := s.view.executions.Get(id)
		if ok && e.Profile == profile && e.Repeat == repeat {
			return e, true
		}
	}
	return nil, false
}

// raced reports whether an execution ended, or is about to, because its GPU
// selection no longer needed it.
func raced(r compute.Reason) bool {
	return r == compute.ReasonNoCapacity || r == compute.ReasonStoppedEarly || r == compute.ReasonDeadline
}

// stopCandidates ends runs of a GPU selection that need not go on.
func (s *selection) stopCandidates(c command.StopCandidates) command.Result {
	parent, ok := s.view.executions.Get(c.Parent)
	switch {
	case !ok || parent.Kind != compute.KindSelection:
		return refuse(compute.CodeNotFound, "execution_not_found", "execution not found")
	case parent.Status.Terminal():
		return refuse(compute.CodeConflict, "already_ended",
			"the execution has already ended as %s", parent.Status)
	}
	var r command.Result
	for _, stop := range c.Stops {
		e, ok := s.view.executions.Get(stop.Execution)
		placed := ok && e.Status > compute.StatusQueued
		if !ok || e.Parent != c.Parent || e.Status.Terminal() || e.Stop != compute.StopNone ||
			!raced(stop.Reason) || placed && stop.Reason == compute.ReasonNoCapacity {
			continue
		}
		s.stopCandidate(e, stop)
		r.Count++
	}
	return r
}

// stopCandidate ends a run that was not placed, and stops another one.
func (s *selection) stopCandidate(known *compute.Execution, stop compute.CandidateStop) {
	e := *known
	e.Stop, e.Predicted = compute.StopGraceful, max(stop.Predicted, 0)
	if e.Status <= compute.StatusQueued {
		s.execution.end(&e, ending{compute.StatusCancelled, stop.Reason, stop.Detail})
		return
	}
	e.Reason, e.Detail = stop.Reason, clip(stop.Detail)
	s.execution.putExecution(&e)
}

// judge returns how a parent ends by how its children ended. Those that the
// GPU selection itself gave up say nothing while there are others.
func judge(parent *compute.Execution, children []*compute.Execution) ending {
	var n [compute.Statuses]int
	gaveUp, starved := 0, 0
	for _, c := range children {
		switch {
		case c.Status == compute.StatusCancelled && raced(c.Reason):
			gaveUp++
			if c.Reason == compute.ReasonNoCapacity {
				starved++
			}
		default:
			n[c.Status]++
		}
	}
	stopped, rest := n[compute.StatusAborted]+n[compute.StatusCancelled], len(children)-gaveUp
	if parent.Stop != compute.StopNone && stopped > 0 {
		v := stopEnding(parent.Stop)
		v.detail = parent.Detail
		return v
	}
	if n[compute.StatusCompleted] > 0 {
		return ending{compute.StatusCompleted, compute.ReasonNone, parent.Detail}
	}
	detail := joinDetail(parent.Detail, whyNone(children))
	switch {
	case starved == len(children):
		return ending{compute.StatusFailed, compute.ReasonNoCapacity, detail}
	case rest == 0:
		return ending{compute.StatusFailed, compute.ReasonChildrenFailed, detail}
	case n[compute.StatusSystemFailure] == rest:
		return ending{compute.StatusSystemFailure, compute.ReasonChildrenFailed, detail}
	case n[compute.StatusAborted] == rest:
		return ending{compute.StatusAborted, compute.ReasonAborted, parent.Detail}
	case stopped == rest:
		return ending{compute.StatusCancelled, compute.ReasonStopped, parent.Detail}
	}
	return ending{compute.StatusFailed, compute.ReasonChildrenFailed, detail}
}

// whyNone says of each GPU type why it has no completed run: how its first run
// ended.
func whyNone(children []*compute.Execution) string {
	detail := ""
	for _, c := range children {
		if c.Repeat > 1 {
			continue
		}
		why := c.Profile + ": " + c.Reason.String()
		if c.Detail != "" {
			why += " (" + c.Detail + ")"
		}
		detail = joinDetail(detail, why)
	}
	return detail
}

// stopSelection stops a parent: at once while it is pending, else by stopping
// its children, the last of which ends it.
func (s *selection) stopSelection(known *compute.Execution, how compute.Stop) {
	parent := *known
	parent.Stop = max(parent.Stop, how)
	if parent.Status == compute.StatusPending {
		s.execution.end(&parent, stopEnding(how))
		return
	}
	s.execution.putExecution(&parent)
	for _, id := range parent.Selection.Children {
		// The end of one run may have ended the next.
		if c, ok := s.view.executions.Get(id); ok && !c.Status.Terminal() {
			s.execution.stop(c, how, compute.ReasonParentEnded)
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
