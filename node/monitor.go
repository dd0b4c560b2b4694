package node

import (
	"context"
	"time"

	"berth/timerslack"
)

// tuneMonitor has the runtime's monitor thread wake less often while the node works.
func (n *Node) tuneMonitor(ctx context.Context) {
	if err := followWork(ctx, calmPeriod, timerslack.OfMonitor); err != nil {
		n.logger.Info("the Go runtime wakes this node more often than it must",
			"hint", "it needs the capability CAP_SYS_NICE", "err", err)
	}
}

// followWork sets the slack of a process that works: from its start, or a garbage collection,
// until there was none for so long. It sets it again after each collection, as the monitor
// starts threads that have its slack. A process at rest gained nothing from it.
func followWork(ctx context.Context, rest time.Duration, set func(slack time.Duration) error) error {
	collected := make(chan struct{}, 1)
	awaitGC(ctx, collected)
	calm := time.NewTimer(rest)
	defer calm.Stop()
	slack := timerslack.Node
	for {
		if err := set(slack); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-calm.C:
			slack = timerslack.Default
		case <-collected:
			slack = timerslack.Node
			calm.Reset(rest)
		}
	}
}
