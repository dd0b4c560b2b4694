package node

import (
	"context"

	"berth/compute"
	"berth/fsm"
)

// endDrains has the state end what still executes on a node whose drain is due.
// The deadline is the state's, so that a new leader goes on where the one
// before ended.
func (l *leader) endDrains(ctx context.Context, term uint64) {
	if !l.machine.View().DrainDue(compute.InstantOf(l.now())) {
		return
	}
	if _, err := l.do(ctx, fsm.Tick{Term: term}); err != nil && ctx.Err() == nil {
		l.logger.Warn("drain not ended", "err", err)
	}
}
