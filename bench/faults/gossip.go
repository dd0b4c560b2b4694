package faults

import (
	"context"
	"time"

	"berth/bench/faults/check"
)

// Gossip forgets dead members after half a minute, so a longer split makes both
// sides forget each other. After each fault of at least gossipSplit the run
// checks that the sides meet again within gossipLimit.
const (
	gossipSplit = 40 * time.Second
	gossipLimit = 60 * time.Second
)

// gossipMeets waits until the gossip of every node sees all nodes, and returns
// the time since an instant. A timeout is a violation.
func (s *session) gossipMeets(ctx context.Context, since int64) time.Duration {
	limit := gossipLimit*time.Duration(s.cfg.Slow) - time.Duration(s.now()-since)
	waiting, cancel := context.WithTimeout(ctx, max(limit, time.Second))
	defer cancel()
	if err := s.world.WaitGossip(waiting); err != nil && ctx.Err() == nil {
		s.violate([]check.Violation{{What: "gossip", Object: "cluster", Detail: err.Error()}})
	}
	return time.Duration(s.now() - since)
}
