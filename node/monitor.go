package node

import (
	"context"
	"time"

	"berth/timerslack"
)

// tuneMonitor has the runtime's monitor thread wake less often while the node works.
func (n *Node) tuneMonitor(ctx context.Context) error {
	if err := followWork(ctx, calmPeriod, timerslack.OfMonitor); err != nil {
		n.logger.Info("the Go runtime wakes this node more often than it must", "err", err)
	}
	return nil
}

// followWork sets the slack of a process that works: from its start, or a garbage collection,
// until there was none for so long. At rest a monitor that wakes late wakes a processor that
// sleeps again, which costs more than it saves.
func followWork(ctx context.Context, rest time.Duration, set func(slack time.Duration) error) error {
	collected := make(chan struct{}, 1)
	awaitGC(ctx, collected)
	calm := time.NewTimer(rest)
	defer calm.Stop()
	slack := timerslack.Default
	for want := timerslack.Node; ; {
		if want != slack {
			if err := set(want); err != nil {
				return err
			}
			slack = want
		}
		select {
		case <-ctx.Done():
			return nil
		case <-calm.C:
			want = timerslack.Default
		case <-collected:
			want = timerslack.Node
			calm.Reset(rest)
		}
	}
}
