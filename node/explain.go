package node

import (
	"context"
	"sync"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/scheduler"
)

// Times of estimates. Computing them takes up to a second on a large cluster.
const (
	estimatePeriod = 5 * time.Second // How often the leader records estimates.
	estimateRest   = 20              // It rests so many times as long as they took.
	estimateAge    = time.Second     // So old an answer may be, of the state's time.
)

// explainer answers why executions wait. One question is computed at a time,
// and the estimates of one view serve all who ask within a second: asking
// costs the node no more than that.
type explainer struct {
	turn sync.Mutex

	at        compute.Instant
	estimates []compute.StartEstimate
}

// explain says why an execution waits, when it may start and, when moves is
// set, what could be moved for it.
func (x *explainer) explain(
	ctx context.Context, view *fsm.View, id compute.ExecutionID, moves bool,
) (compute.Explanation, error) {
	out := scheduler.Explain(view, id)
	if out.Position == 0 {
		return out, nil
	}
	x.turn.Lock()
	defer x.turn.Unlock()
	if err := ctx.Err(); err != nil {
		return out, err // It waited for its turn until its time was up.
	}
	if age := view.Now().Sub(x.at); x.at.IsZero() || age < 0 || age > estimateAge {
		x.at, x.estimates = view.Now(), scheduler.EstimateQueue(view)
	}
	out.Estimate = scheduler.Estimate(view, id, x.estimates)
	out.Calibration = view.Calibration()
	if moves {
		out.Defragment = scheduler.Defragment(view, id)
	}
	return out, nil
}

// recordEstimates puts estimates of what waits into the state, which compares
// them with what happens. It returns how long to rest.
func (l *leader) recordEstimates(ctx context.Context, term uint64) time.Duration {
	start, view := l.now(), l.machine.View()
	list := scheduler.Unestimated(view, scheduler.EstimateQueue)
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
