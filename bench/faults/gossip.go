package faults

import (
	"context"
	"time"

	"berth/bench/faults/check"
)

// Two sides that are split for longer than gossip remembers the dead, half a
// minute, forget each other. From a fault of gossipSplit on it is looked at
// whether, and when, they have met again; they must have within gossipLimit.
const (
	gossipSplit = 40 * time.Second
	gossipLimit = 60 * time.Second
)

// gossipMeets waits until the gossip of every node sees all nodes, and returns
// how long after an instant that was. That it does not is a violation.
func (s *session) gossipMeets(ctx context.Context, since int64) time.Duration {
	limit := gossipLimit*time.Duration(s.cfg.Slow) - time.Duration(s.now()-since)
	waiting, cancel := context.WithTimeout(ctx, max(limit, time.Second))
	defer cancel()
	if err := s.world.WaitGossip(waiting); err != nil && ctx.Err() == nil {
		s.violated([]check.Violation{{What: "gossip", Object: "cluster", Detail: err.Error()}})
	}
	return time.Duration(s.now() - since)
}
