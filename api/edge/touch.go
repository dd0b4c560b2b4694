package edge

import (
	"context"
	"sync"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/loop"
)

// Limits of recorded key use.
const (
	touchEvery = time.Minute
	maxTouched = 10_000 // Keys beyond it are recorded at their next use.
)

// touched collects when keys were last used, until that is proposed.
type touched struct {
	mu   sync.Mutex
	used map[compute.KeyID]compute.Instant
}

func newTouched() *touched { return &touched{used: make(map[compute.KeyID]compute.Instant)} }

// use records that k is used now, unless the state already has this minute.
func (t *touched) use(k *compute.Key, now time.Time) {
	at := compute.InstantOf(now.Truncate(touchEvery))
	if k.LastUsedAt >= at {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()

	if len(t.used) < maxTouched {
		t.used[k.ID] = at
	}
}

// take returns the uses since the last take.
func (t *touched) take() map[compute.KeyID]compute.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()

	used := t.used
	t.used = make(map[compute.KeyID]compute.Instant)
	return used
}

// recordUse proposes once a minute which keys were used. If the proposal fails, these
// uses are dropped: the next one is recorded again.
func (a *access) recordUse(ctx context.Context) {
	for loop.Sleep(ctx, touchEvery) {
		used := a.touched.take()
		if len(used) == 0 {
			continue
		}
		if _, _, err := a.cfg.Proposer.Propose(ctx, command.TouchKeys{Used: used}); err != nil {
			a.log.Debug("use of keys not recorded", "err", err)
		}
	}
}
