package node

import (
	"context"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/scheduler"
	"berth/scheduler/forecast"
)

// Times of estimates. Computing them takes up to a second on a large cluster.
const (
	estimatePeriod = 5 * time.Second // How often the leader records estimates.
	estimateRest   = 20              // It rests so many times as long as they took.
	estimateAge    = time.Second     // So old an answer may be, of the state's time.
)

// explainer answers why executions wait. One question is computed at a time, of
// organizations in turn; what all questions about one view have in common is
// computed once, and its estimates serve all who ask within a second.
type explainer struct {
	turns *turns

	survey *scheduler.Survey // The turn's, as what follows; nil before the first.
	view   *fsm.View         // Of the survey.

	at        compute.Instant
	estimates []compute.StartEstimate
}

// explain says why an execution waits, when it may start and, when moves is
// set, what could be moved for it. The error is that of ctx.
func (x *explainer) explain(
	ctx context.Context, view *fsm.View, id compute.ExecutionID, moves bool,
) (compute.Explanation, error) {
	var org compute.OrgID
	if e, known := view.AnyExecution(id); known {
		org = e.Org
	}
	done, err := x.turns.take(ctx, org)
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

// recordEstimates puts estimates of what waits into the state, which compares
// them with what happens. It returns how long to rest.
func (l *leader) recordEstimates(ctx context.Context, term uint64) time.Duration {
	start, view := l.now(), l.machine.View()
	list := forecast.Unestimated(view, forecast.EstimateQueue)
	took := l.now().Sub(start)
	if len(list) > 0 {
		cmd := fsm.RecordEstimates{Term: term, At: view.Now(), Estimates: list}
		if view.Allows(cmd) != nil {
			return estimatePeriod
		}
		if _, err := l.do(ctx, cmd); err != nil && ctx.Err() == nil {
			l.logger.Warn("estimates not recorded", "err", err)
		}
	}
	return max(estimatePeriod, estimateRest*took)
}

// estimate records estimates until ctx, the term, ends.
func (l *leader) estimate(ctx context.Context, term uint64) {
	timer := time.NewTimer(estimatePeriod)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(l.recordEstimates(ctx, term))
		}
	}
}
