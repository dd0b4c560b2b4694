package api

import (
	"context"
	"math"
	"sync"
	"time"

	"berth/api/wire"
	"berth/compute"
)

// progressBudget is how long a GPU selection's answer waits for the progress
// of its live rows.
const progressBudget = time.Second

// startSelection accepts a GPU selection: the parent and its queue message are
// one record, the sub-executions follow.
func (s *Server) startSelection(r *request) (any, error) {
	in := r.body.(*wire.SelectionStart)
	if err := available(&in.PythonStart); err != nil {
		return nil, err
	}
	switch {
	case in.Repeats > 1:
		return nil, errNotAvailable("repeats > 1")
	case in.DeadlineSeconds != nil:
		return nil, errNotAvailable("deadline_seconds")
	}
	// It executes on GPU types, not on this profile; but a profile that does
	// not exist is a mistake of which the client should hear.
	if in.NamesProfile() {
		if _, _, _, err := r.view.Resolve(in.Profile()); err != nil {
			return nil, err
		}
	}
	selection := &compute.Selection{GPUTypes: in.GPUTypes}
	if err := selection.Objective.UnmarshalText([]byte(in.Objective)); err != nil {
		return nil, err
	}
	e := s.newExecution(r, &in.PythonStart)
	e.Kind, e.Profile, e.Selection = compute.KindSelection, compute.KindSelection.String(), selection
	result, err := s.submit(r, &in.PythonStart, e)
	if err != nil {
		return nil, err
	}
	return wire.SelectionStarted{
		ExecutionID: result.Execution, Status: result.Status,
		Message: "The GPU selection is accepted; its sub-executions follow.",
	}, nil
}

// getSelection answers what a GPU selection found so far.
func (s *Server) getSelection(r *request) (any, error) {
	e, err := r.find(compute.KindSelection)
	if err != nil {
		return nil, err
	}
	query := r.query.(*wire.SelectionQuery)
	if query.Format != "json" {
		return nil, errNotAvailable("format=" + query.Format)
	}
	if e, err = s.hold(r, e, query.Wait); err != nil {
		return nil, err
	}
	return s.selection(r, e), nil
}

// selection returns the GPU selection e.
func (s *Server) selection(r *request, e *compute.Execution) wire.Selection {
	children := r.view.Children(e.ID)
	candidates := make([]compute.Candidate, len(children))
	for i, child := range children {
		candidates[i] = candidateOf(summaryOf(r.view, child), child)
	}
	verdict := s.cfg.Judge(e.Selection.Objective, candidates)
	out := wire.Selection{
		ExecutionID: e.ID, Status: e.Status, Parent: summaryOf(r.view, e),
		Objective: e.Selection.Objective, GPUTypes: e.Selection.GPUTypes,
		Pareto: []string{}, Rows: make([]wire.SelectionRow, len(children)),
		Reason: orNull(verdict.Reason),
	}
	if out.GPUTypes == nil {
		out.GPUTypes = []string{}
	}
	if e.MaxCredits > 0 {
		out.MaxCredits = &e.MaxCredits
	}
	progress := s.progress(r.ctx, children)
	for i, child := range children {
		row := rowOf(child, candidates[i])
		row.Progress = progress[i]
		if i < len(verdict.Pareto) && verdict.Pareto[i] {
			row.Pareto = true
			out.Pareto = append(out.Pareto, row.HardwareProfile)
		}
		if i < len(verdict.Scores) && child.Status == compute.StatusCompleted {
			row.Score = finite(verdict.Scores[i])
		}
		out.Rows[i] = row
	}
	if verdict.Best >= 0 && verdict.Best < len(children) {
		out.Recommendation = &children[verdict.Best].Profile
	}
	return out
}

// finite returns x, nil when it is not a number that JSON has.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// candidateOf returns what is judged of a sub-execution.
func candidateOf(summary wire.ExecutionSummary, e *compute.Execution) compute.Candidate {
	c := compute.Candidate{
		Execution: e.ID, Profile: e.Profile, Status: e.Status, Reason: e.Reason,
		Duration: e.Duration, Credits: e.Billed,
		Ran: e.Ran, ExitCode: e.ExitCode, Usage: e.Usage,
	}
	if summary.Metadata.Node != nil {
		c.Node = *summary.Metadata.Node
	}
	return c
}

// rowOf returns what one GPU type did.
func rowOf(e *compute.Execution, c compute.Candidate) wire.SelectionRow {
	row := wire.SelectionRow{
		ExecutionID: e.ID, HardwareProfile: e.Profile, GPUType: e.Request.GPUType,
		Status: e.Status, StatusDetails: orNull(e.Reason.String()), Node: orNull(c.Node),
	}
	if !e.Status.Terminal() {
		return row
	}
	row.Credits = &e.Billed
	if e.Ran {
		duration := seconds(e.Duration)
		row.Duration = &duration
		row.ReturnCode = &e.ExitCode
		row.GPUUtilPercent = &e.Usage.GPUUtilPercent
		row.GPUMemoryMiB = &e.Usage.GPUMemoryMiB
		row.PeakMemoryMiB = &e.Usage.PeakMemoryMiB
	}
	return row
}

// progress returns how far each child is, read from all of them at once.
func (s *Server) progress(ctx context.Context, children []*compute.Execution) []*float64 {
	ctx, cancel := context.WithTimeout(ctx, progressBudget)
	defer cancel()
	out := make([]*float64, len(children))
	var wg sync.WaitGroup
	for i, child := range children {
		wg.Go(func() { out[i] = s.progressOf(ctx, child) })
	}
	wg.Wait()
	return out
}
