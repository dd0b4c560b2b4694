package api

import (
	"context"
	"sync"
	"time"

	"berth/compute"
	"berth/fsm"
)

// Limits of what is remembered of the use of keys.
const (
	touchEvery = time.Minute
	maxTouched = 10_000 // Keys beyond it are recorded at their next use.
)

// touched remembers when keys were last used, until the state is told.
type touched struct {
	mu   sync.Mutex
	used map[compute.KeyID]compute.Instant
}

func newTouched() *touched { return &touched{used: make(map[compute.KeyID]compute.Instant)} }

// use records that k is used now, unless the state has it to the minute.
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

// take returns what was recorded since the last take.
func (t *touched) take() map[compute.KeyID]compute.Instant {
	t.mu.Lock()
	defer t.mu.Unlock()

	used := t.used
	t.used = make(map[compute.KeyID]compute.Instant)
	return used
}

// touchLoop tells the state once a minute which keys were used. What cannot be
// told is dropped: the next use comes.
func (s *Server) touchLoop(ctx context.Context) {
	ticker := time.NewTicker(touchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		used := s.touched.take()
		if len(used) == 0 {
			continue
		}
		if _, _, err := s.cfg.Proposer.Propose(ctx, fsm.TouchKeys{Used: used}); err != nil {
			s.log.Debug("use of keys not recorded", "err", err)
		}
	}
}
