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

// followWork sets the slack of a process: it works from the second garbage collection of so long a
// time, until there was none for as long. At rest, where one comes now and then, slack took more of
// the processors. It sets it again after each collection, as the monitor starts threads that
// have its slack.
func followWork(ctx context.Context, rest time.Duration, set func(slack time.Duration) error) error {
	collected := make(chan struct{}, 1)
	awaitGC(ctx, collected)
	calm := time.NewTimer(rest)
	defer calm.Stop()
	slack, recent := timerslack.Default, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-calm.C:
			slack, recent = timerslack.Default, false
		case <-collected:
			if recent {
				slack = timerslack.Node
			}
			recent = true
			calm.Reset(rest)
		}
		if err := set(slack); err != nil {
			return err
		}
	}
}
