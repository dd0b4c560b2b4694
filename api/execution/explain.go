package execution

import (
	"time"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm"
)

// explain answers why an execution waits, when it may start, and why it was
// placed where it is.
func (g *executions) explain(r *edge.Request) (any, error) {
	e, err := g.Find(r)
	if err != nil {
		return nil, err
	}
	known, err := g.Config.Explain(r.Ctx, r.View, e.ID, r.Query.(*wire.ExplainQuery).Defrag)
	if err != nil {
		return nil, err
	}
	out := wire.Explanation{
		ExecutionID: e.ID, Status: e.Status, Name: wire.OrNull(e.Name), Reason: wire.OrNull(e.Reason.String()),
		Index: known.Index, Queued: known.Queued, Nodes: known.Nodes, NodesFit: known.Fits, Refused: wire.Counts{},
		Replicas: ReplicasOf(r.View, e), Detail: wire.OrNull(e.Detail), EngineOutput: LastLines(r.Ctx, g.Config.Logs, e),
		Placement: placementOf(r.View, e), Brake: brakeHolding(r.View, e), Retries: e.Retries, MaxRetries: e.MaxRetries,
	}
	if known.Position == 0 {
		return out, nil
	}
	out.Position, out.Ahead, out.Reason = &known.Position, aheadOf(known.Ahead), wire.OrNull(known.Reason.String())
	for _, refused := range known.Refused {
		out.Refused[refused.Reason.String()] = refused.Nodes
	}
	if known.Limit > 0 && known.Limit < maxLimit {
		out.Concurrency = &wire.Share{Used: known.Running, Limit: known.Limit}
	}
	out.Estimate = estimateOf(r.View.Now(), e, known)
	out.Defragmentation = quoteOf(r.View, e.Org, known.Defragment)
	return out, nil
}

// maxLimit is the smallest value that means no limit.
const maxLimit = 1 << 40

// gpus returns thousandths of a GPU as GPUs.
func gpus(milli int64) float64 { return float64(milli) / compute.WholeGPU }

func aheadOf(a compute.Ahead) *wire.Ahead {
	out := &wire.Ahead{
		Executions: a.Executions, GPUs: gpus(a.MilliGPU),
		OwnExecutions: a.Own.Executions, OwnGPUs: gpus(a.Own.MilliGPU),
		Types: []wire.TypeAhead{}, Own: append([]compute.ExecutionID{}, a.IDs...),
	}
	for _, t := range a.Types {
		out.Types = append(out.Types, wire.TypeAhead{
			GPUType: wire.OrNull(t.GPUType), Executions: t.Executions, GPUs: gpus(t.MilliGPU),
		})
	}
	return out
}

// estimateOf returns the estimate, scaled by the accuracy of earlier ones with
// as many GPUs.
func estimateOf(now compute.Instant, of *compute.Execution, known compute.Explanation) *wire.Estimate {
	if known.Estimate == nil {
		return nil
	}
	scales := known.Calibration.Sizes[of.Request.SizeClass()].Scales()
	e := scales.Apply(*known.Estimate)
	return &wire.Estimate{
		P50Seconds: seconds(e.P50), P90Seconds: seconds(e.P90), P50At: now.Add(e.P50), P90At: now.Add(e.P90),
		Samples: e.Samples,
		Calibrated: wire.Calibration{
			Estimates: known.Calibration.P90.Total,
			P50:       coverage(known.Calibration.P50), P90: coverage(known.Calibration.P90),
			P50Scale: float64(scales.P50) / compute.ScaleOne, P90Scale: float64(scales.P90) / compute.ScaleOne,
		},
	}
}

// coverage returns the fraction of estimates that held, nil without any.
func coverage(c compute.Coverage) *float64 {
	if c.Total == 0 {
		return nil
	}
	part := float64(c.Covered) / float64(c.Total)
	return &part
}

// placementOf returns why the newest attempt of e was placed where it is.
func placementOf(view *fsm.View, e *compute.Execution) *wire.Placement {
	attempts := view.Attempts(e.ID)
	if len(attempts) == 0 {
		return nil
	}
	a := attempts[len(attempts)-1]
	choice := a.Placement.Choice
	out := &wire.Placement{
		Attempt: a.Epoch, Node: handler.NodeName(view, a.Node), Index: a.PlaceIndex,
		ViewIndex: a.Placement.ViewIndex, Score: choice.Score,
	}
	if !choice.RunnerUp.IsZero() {
		name := handler.NodeName(view, choice.RunnerUp)
		out.RunnerUp, out.RunnerUpScore = &name, &choice.RunnerUpScore
	}
	return out
}

// quoteOf returns a quote as an organization may see it: for foreign executions
// only their loss, not their identity.
func quoteOf(view *fsm.View, org compute.OrgID, q *compute.Quote) *wire.Quote {
	if q == nil {
		return nil
	}
	out := &wire.Quote{Node: handler.NodeName(view, q.Node), Moves: []wire.Move{}, Price: q.Price, Exact: q.Exact}
	for _, m := range q.Moves {
		move := wire.Move{
			From: handler.NodeName(view, m.From), To: handler.NodeName(view, m.To),
			LostSeconds: seconds(m.Lost.Truncate(time.Millisecond)), Price: m.Price,
		}
		if m.Org == org {
			move.ExecutionID = &m.Execution
		}
		out.Moves = append(out.Moves, move)
	}
	return out
}

// brakeHolding returns the brake if it keeps the attempt of e, whose node is
// down, from being given up; nil otherwise.
func brakeHolding(view *fsm.View, e *compute.Execution) *wire.BrakeHold {
	attempts := view.Attempts(e.ID)
	if len(attempts) == 0 || view.Brake().Since.IsZero() {
		return nil
	}
	a := attempts[len(attempts)-1]
	n, known := view.Node(a.Node)
	if a.Ended || !known || n.State == compute.NodeUp || n.Drained {
		return nil
	}
	up := 0
	for n := range view.Nodes() {
		if n.State == compute.NodeUp {
			up++
		}
	}
	return &wire.BrakeHold{
		Node: n.Name, DownAt: n.ChangedAt, Since: view.Brake().Since, Vanished: len(view.Vanished()), Up: up,
	}
}
