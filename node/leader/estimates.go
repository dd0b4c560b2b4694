package leader

import (
	"context"
	"time"

	"berth/fsm/command"
	"berth/loop"
	"berth/scheduler/forecast"
)

// Times of estimates. Computing them takes up to a second on a large cluster.
const (
	estimatePeriod = 5 * time.Second // How often the leader records estimates.
	estimateRest   = 20              // It pauses for so many times as long as they took.
)

// recordEstimates puts start estimates of queued executions into the state,
// which compares them with the actual starts. It returns how long to rest.
func (l *Leader) recordEstimates(ctx context.Context, term uint64) time.Duration {
	start, view := l.Now(), l.Machine.View()
	list := forecast.Unestimated(view, forecast.EstimateQueue)
	took := l.Now().Sub(start)
	if len(list) > 0 {
		cmd := command.RecordEstimates{Term: term, At: view.Now(), Estimates: list}
		if view.Allows(cmd) != nil {
			return estimatePeriod
		}
		if _, err := l.do(ctx, cmd); err != nil && ctx.Err() == nil {
			l.Logger.Warn("estimates not recorded", "err", err)
		}
	}
	return max(estimatePeriod, estimateRest*took)
}

// estimate records estimates until ctx, the term, ends.
func (l *Leader) estimate(ctx context.Context, term uint64) {
	for wait := estimatePeriod; loop.Sleep(ctx, wait); {
		wait = l.recordEstimates(ctx, term)
	}
}
