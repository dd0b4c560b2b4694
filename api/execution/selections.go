package execution

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/api/edge"
	"berth/api/edge/answer"
	"berth/api/handler"
	"berth/api/submission"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// selecting is the path of the group.
const selecting = edge.Root + "/execution/gpu_selection"

// selections serves GPU Selection Execution.
type selections struct {
	executions
}

// Routes returns the routes of the group.
func (g *selections) Routes() []edge.Route {
	return []edge.Route{
		{
			Method: http.MethodPost, Path: selecting + "/start", Tag: "GPU Selection Execution", Need: edge.NeedCaller,
			Summary: "Execute the same code on every GPU type that fits, and recommend one. execution_type is not used.",
			Large:   true, Body: edge.Type[wire.SelectionStart](), Reply: edge.Type[wire.SelectionStarted](),
			Handle: g.startSelection,
		},
		{
			Method: http.MethodGet, Path: selecting + "/{id}", Tag: "GPU Selection Execution", Need: edge.NeedCaller,
			Summary: "The result of a GPU selection so far: a row per GPU type, the Pareto front, a recommendation.",
			Query:   edge.Type[wire.SelectionQuery](), Reply: edge.Type[wire.Selection](), Handle: g.getSelection,
			Accepts: []string{"text/csv", "image/svg+xml"}, // With ?format=.
		},
		{
			Method: http.MethodGet, Path: selecting + "/{id}/status", Tag: "GPU Selection Execution", Need: edge.NeedCaller,
			Summary: "The status of a GPU selection.",
			Reply:   edge.Type[wire.ExecutionStatus](), Handle: g.selectionStatus,
		},
		{
			Method: http.MethodPost, Path: selecting + "/abort/{id}", Tag: "GPU Selection Execution", Need: edge.NeedCaller,
			Summary: "End a GPU selection with all its sub-executions at once.",
			Reply:   edge.Type[wire.Stopped](), Handle: g.abortSelection,
		},
	}
}

// Limits of what a GPU selection's answer reads of its sub-executions.
const (
	progressBudget = time.Second // For the output of all of them together.
	rowTailBytes   = 2 << 10     // Bytes from the end of each output.
)

// startSelection accepts a GPU selection: the parent and its queue message are
// one record, the sub-executions follow.
func (g *selections) startSelection(r *edge.Request) (any, error) {
	in := r.Body.(*wire.SelectionStart)
	if err := submission.Available(r, &in.PythonStart); err != nil {
		return nil, err
	}
	if in.Preemptible {
		return nil, compute.Errorf(compute.CodeInvalid,
			"A GPU selection cannot be preemptible: how long its runs take is what it measures.").Named("selection_preemptible")
	}
	// It executes on GPU types, not on this profile; but a profile that does
	// not exist is a mistake of which the client should hear.
	if in.NamesProfile() && !r.Repeat {
		if _, _, _, err := r.View.Resolve(in.Profile()); err != nil {
			return nil, err
		}
	}
	selection := &compute.Selection{
		GPUTypes: in.GPUTypes, Repeats: in.Repeats, Complete: !in.EarlyStop,
	}
	if in.DeadlineSeconds != nil {
		selection.Deadline = time.Duration(*in.DeadlineSeconds) * time.Second
	}
	if err := selection.Objective.UnmarshalText([]byte(in.Objective)); err != nil {
		return nil, err
	}
	e, err := submission.New(g.Core, r, &in.PythonStart)
	if err != nil {
		return nil, err
	}
	e.Kind, e.Profile, e.Selection = compute.KindSelection, compute.KindSelection.String(), selection
	if e.Storage, err = submission.MountOf(r, &in.Mount, &in.Start, false); err != nil {
		return nil, err
	}
	result, err := submission.ProposeCode(g.Core, r, &in.PythonStart, e)
	if err != nil {
		return nil, err
	}
	return wire.SelectionStarted{
		ExecutionID: result.Execution, Status: result.Status,
		Message: "The GPU selection is accepted; its sub-executions follow.",
	}, nil
}

// getSelection answers what a GPU selection found so far.
func (g *selections) getSelection(r *edge.Request) (any, error) {
	e, err := g.Find(r, compute.KindSelection)
	if err != nil {
		return nil, err
	}
	query := r.Query.(*wire.SelectionQuery)
	if e, err = g.hold(r, e, query.Wait, query.Until); err != nil {
		return nil, err
	}
	c := runsOf(r.View, e)
	c.verdict = g.Config.Judge(e.Selection.Objective, c.candidates)
	switch query.Format {
	case "svg":
		image, err := g.Config.Chart(e.Selection.Objective, c.candidates, c.verdict)
		return answer.Text{ContentType: "image/svg+xml", Body: image}, err
	case "csv":
		table, err := selectionCSV(selectionOf(r.View, c))
		return answer.Text{ContentType: "text/csv; charset=utf-8", Body: table}, err
	}
	out := selectionOf(r.View, c)
	g.addOutputs(r.Ctx, c.runs, out.Rows)
	return out, nil
}

// selectionRuns is a GPU selection with its sub-executions by GPU type.
type selectionRuns struct {
	parent     *compute.Execution
	runs       [][]*compute.Execution // By GPU type, then by repeat.
	candidates []compute.Candidate    // The same, as they are judged.
	verdict    compute.Verdict
}

// runsOf returns the GPU selection of a parent.
func runsOf(view *fsm.View, parent *compute.Execution) *selectionRuns {
	c := &selectionRuns{parent: parent, runs: compute.ByProfile(view.Children(parent.ID))}
	for _, runs := range c.runs {
		c.candidates = append(c.candidates, compute.CandidateOf(runs))
	}
	return c
}

// selectionOf returns a GPU selection as sent to clients, without data from the
// output of its runs.
func selectionOf(view *fsm.View, c *selectionRuns) wire.Selection {
	e := c.parent
	out := wire.Selection{
		ExecutionID: e.ID, Status: e.Status, Parent: handler.SummaryOf(view, e),
		Objective: e.Selection.Objective, GPUTypes: e.Selection.GPUTypes,
		Repeats: e.Selection.Runs(), EarlyStop: !e.Selection.Complete,
		Pareto: []string{}, Rows: make([]wire.SelectionRow, len(c.runs)),
		Reason: wire.OrNull(c.verdict.Reason), Confidence: c.verdict.Confidence,
	}
	if out.GPUTypes == nil {
		out.GPUTypes = []string{}
	}
	if e.MaxCredits > 0 {
		out.MaxCredits = &e.MaxCredits
	}
	if e.Selection.Deadline > 0 {
		whole := int(e.Selection.Deadline / time.Second)
		out.Deadline = &whole
	}
	for i, runs := range c.runs {
		row := rowOf(view, runs)
		if i < len(c.verdict.Rows) {
			addResult(&row, c.verdict.Rows[i])
		}
		if row.Pareto {
			out.Pareto = append(out.Pareto, row.HardwareProfile)
		}
		out.Rows[i] = row
	}
	if best := c.verdict.Best; best >= 0 && best < len(out.Rows) {
		out.Recommendation = &out.Rows[best].HardwareProfile
	}
	return out
}

// addResult adds the result of a GPU type to its row.
func addResult(row *wire.SelectionRow, s compute.CandidateResult) {
	row.Status, row.StatusDetails, row.Pareto = s.Status, wire.OrNull(s.Reason.String()), s.Pareto
	if s.Completed == 0 {
		return
	}
	duration := seconds(s.Duration)
	row.Duration, row.Credits, row.Score = &duration, &s.Credits, finite(s.Score)
}

// finite returns x, nil when it is not a number that JSON has.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// rowOf returns the row of one GPU type, from its first run where runs differ.
func rowOf(view *fsm.View, runs []*compute.Execution) wire.SelectionRow {
	first := runs[0]
	one := runRow(view, first)
	row := wire.SelectionRow{
		ExecutionID: first.ID, HardwareProfile: first.Profile, GPUType: first.Request.GPUType,
		Status: first.Status, StatusDetails: one.StatusDetails, Detail: one.Detail, Node: one.Node,
		Duration: one.Duration, Credits: one.Credits, ReturnCode: one.ReturnCode, EnergyJoule: one.EnergyJoule,
		Samples:   []wire.GPUSample{},
		Simulated: slices.ContainsFunc(runs, func(e *compute.Execution) bool { return simulated(view, e) }),
	}
	for _, e := range runs {
		row.CreditsSpent += e.Billed
		row.Runs = append(row.Runs, runRow(view, e))
		if e.Status == compute.StatusCancelled && e.Reason == compute.ReasonStoppedEarly {
			row.StoppedEarly, row.Detail = true, wire.OrNull(e.Detail)
		}
		if e.Predicted > 0 && e.Status.Terminal() {
			predicted := seconds(e.Predicted)
			row.Predicted = &predicted
		}
	}
	if first.Status.Terminal() && first.Ran {
		addUsage(&row, first.Usage)
	}
	return row
}

// simulated reports whether an execution has, or had, a simulated GPU: as its
// node measured it or, before that, by the record of the GPU.
func simulated(view *fsm.View, e *compute.Execution) bool {
	if e.Usage.Simulated {
		return true
	}
	attempts := view.Attempts(e.ID)
	if len(attempts) == 0 {
		return false
	}
	newest := attempts[len(attempts)-1]
	node, ok := view.Node(newest.Node)
	return ok && slices.ContainsFunc(node.GPUs, func(g compute.GPU) bool {
		return g.Simulated && slices.ContainsFunc(newest.GPUs, func(s compute.GPUShare) bool { return s.GPU == g.ID })
	})
}

// runRow returns the row of one run.
func runRow(view *fsm.View, e *compute.Execution) wire.SelectionRun {
	run := wire.SelectionRun{
		ExecutionID: e.ID, Status: e.Status, StatusDetails: wire.OrNull(e.Reason.String()), Detail: wire.OrNull(e.Detail),
		Node: handler.SummaryOf(view, e).Metadata.Node,
	}
	if !e.Status.Terminal() {
		return run
	}
	run.Credits = &e.Billed
	if e.Ran {
		duration := seconds(e.Duration)
		run.Duration, run.ReturnCode = &duration, &e.ExitCode
		run.EnergyJoule = thousandths(e.Usage.EnergyMilliJ)
	}
	return run
}

// addUsage adds to a row what its first run used.
func addUsage(row *wire.SelectionRow, u compute.Usage) {
	row.GPUUtilPercent, row.GPUMemoryMiB = gpuUsage(&u)
	row.PeakMemoryMiB = &u.PeakMemoryMiB
	row.PowerWatt = thousandths(u.PowerMilliW)
	for _, sample := range u.Samples {
		out := wire.GPUSample{At: float64(sample.AtMs) / 1000}
		if sample.UtilPercent >= 0 {
			out.UtilPercent = &sample.UtilPercent
		}
		if sample.MemoryMiB >= 0 {
			out.MemoryMiB = &sample.MemoryMiB
		}
		if sample.PowerWatt >= 0 {
			out.PowerWatt = &sample.PowerWatt
		}
		row.Samples = append(row.Samples, out)
	}
}

// gpuUsage returns the utilization and memory of an execution's GPUs, nil if
// not measured.
func gpuUsage(u *compute.Usage) (utilPercent *int, memoryMiB *int64) {
	if !u.Measured() {
		return nil, nil
	}
	if u.GPUUtilPercent >= 0 {
		utilPercent = &u.GPUUtilPercent
	}
	if u.GPUMemoryMiB >= 0 {
		memoryMiB = &u.GPUMemoryMiB
	}
	return utilPercent, memoryMiB
}

// thousandths returns n thousandths, nil for 0, which is unknown.
func thousandths(n int64) *float64 {
	if n <= 0 {
		return nil
	}
	whole := float64(n) / 1000
	return &whole
}

// addOutputs reads the outputs of all runs concurrently and adds to their rows
// the progress of live runs and the last lines of ended ones.
func (g *selections) addOutputs(ctx context.Context, runs [][]*compute.Execution, rows []wire.SelectionRow) {
	ctx, cancel := context.WithTimeout(ctx, progressBudget)
	defer cancel()
	var wg sync.WaitGroup
	for i := range rows {
		wg.Go(func() {
			if e := latestProgress(runs[i]); e != nil {
				rows[i].Progress = g.progressOf(ctx, e)
				addExpected(&rows[i], e, g.Now())
			}
		})
		if first := runs[i][0]; first.Status.Terminal() && first.Ran {
			wg.Go(func() { rows[i].OutputTail = g.rowTail(ctx, first) })
		}
	}
	wg.Wait()
}

// latestProgress returns the run whose progress is shown for its GPU type: the last one
// that is running or has completed; nil for none.
func latestProgress(runs []*compute.Execution) *compute.Execution {
	for _, e := range slices.Backward(runs) {
		if !e.Status.Terminal() && e.Status != compute.StatusPending || e.Status == compute.StatusCompleted {
			return e
		}
	}
	return nil
}

// addExpected adds the expected time and cost of the running run, extrapolated
// from its newest progress.
func addExpected(row *wire.SelectionRow, e *compute.Execution, now time.Time) {
	row.Expected, row.ExpectedCredits = nil, nil
	elapsed := now.Sub(e.StartedAt.Time())
	if e.Status != compute.StatusRunning || row.Progress == nil || *row.Progress <= 0 || elapsed <= 0 {
		return
	}
	// Slower than the time limit allows, it ends there.
	took := min(elapsed.Seconds() / *row.Progress, max(e.Timeout, elapsed).Seconds())
	expected := time.Duration(took * float64(time.Second)).Round(time.Millisecond)
	whole, credits := seconds(expected), e.Price.Charge(expected)
	row.Expected, row.ExpectedCredits = &whole, &credits
}

// rowTail returns the end of an execution's output, nil if it cannot be read.
func (g *selections) rowTail(ctx context.Context, e *compute.Execution) *string {
	output, err := g.Config.Logs.Tail(ctx, e.ID, rowTailBytes)
	if err != nil {
		g.Log.Debug("output not readable", "execution", e.ID, "err", err)
		return nil
	}
	tail := strings.ToValidUTF8(string(output.Combined), "\uFFFD")
	return &tail
}
