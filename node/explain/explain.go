package explain

import (
	"context"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/scheduler"
	"berth/scheduler/forecast"
)

// estimateAge is how old an answer may be, of the state's time.
const estimateAge = time.Second

// Explainer answers why executions wait. One question is computed at a time, of
// organizations in turn. The survey of a view is computed once for all
// questions about it, and its estimates serve every question within a second.
type Explainer struct {
	limiter *loop.FairLimiter[compute.OrgID]

	survey *scheduler.Survey // Owned by the holder of the turn, like the fields below; nil at first.
	view   *fsm.View         // The state that the survey is of.

	at        compute.Instant
	estimates []compute.StartEstimate
}

// New returns an explainer.
func New() *Explainer { return &Explainer{limiter: loop.NewFairLimiter[compute.OrgID](1)} }

// Explain says why an execution waits, when it may start and, when moves is
// set, what could be moved for it. The error is that of ctx.
func (x *Explainer) Explain(
	ctx context.Context, view *fsm.View, id compute.ExecutionID, moves bool,
) (compute.Explanation, error) {
	var org compute.OrgID
	if e, known := view.AnyExecution(id); known {
		org = e.Org
	}
	done, err := x.limiter.Take(ctx, org)
	if err != nil {
		return compute.Explanation{}, err
	}
	defer done()
	if x.view != view {
		x.view, x.survey = view, scheduler.NewSurvey(view)
	}
	out, e := x.survey.Explain(id), x.survey.Waiting(id)
	if e == nil {
		return out, nil
	}
	if age := view.Now().Sub(x.at); x.at.IsZero() || age < 0 || age > estimateAge {
		x.at, x.estimates = view.Now(), forecast.EstimateQueue(view)
	}
	out.Estimate = forecast.Estimate(view, id, x.estimates)
	out.Calibration = view.Calibration()
	if moves {
		out.Defragment = forecast.Defragment(ctx, view, e)
	}
	return out, ctx.Err()
}
