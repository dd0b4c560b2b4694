package leader

import (
	"context"

	"berth/compute"
	"berth/fsm/command"
)

// endDrains has the state end what still executes on a node whose drain is due.
// The deadline is the state's, so that a new leader goes on where the one
// before ended.
func (l *Leader) endDrains(ctx context.Context, term uint64) {
	if !l.Machine.View().DrainDue(compute.InstantOf(l.Now())) {
		return
	}
	if _, err := l.do(ctx, command.Tick{Term: term}); err != nil && ctx.Err() == nil {
		l.Logger.Warn("drain not ended", "err", err)
	}
}
