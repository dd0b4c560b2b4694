package api_test

import (
	"context"
	"testing"
	"time"

	"berth/api/handler"
	"berth/compute"
	"berth/fsm"
)

// TestReplayTakesItsTime replays the log, which may take longer than other answers.
// If even that is not enough, the answer says what to do.
func TestReplayTakesItsTime(t *testing.T) {
	var left []time.Duration
	ask := func(ctx context.Context) error {
		end, bounded := ctx.Deadline()
		if !bounded {
			t.Error("nothing bounds it")
		}
		left = append(left, time.Until(end))
		return context.DeadlineExceeded
	}
	w := newWorld(t, func(c *handler.Config) {
		c.Replay = func(ctx context.Context, _ uint64, _ int) ([]compute.Replay, error) { return nil, ask(ctx) }
		c.WhatIf = func(ctx context.Context, _ *fsm.View, _ uint64, _ func(*fsm.View) (compute.WhatIf, error),
		) (compute.Forecast, *fsm.View, error) {
			return compute.Forecast{}, nil, ask(ctx)
		}
	})
	w.want(400, "replay_too_long", "GET", "/admin/replay?index=7", rootToken, nil)
	w.want(400, "replay_too_long", "POST", "/admin/whatif", rootToken, map[string]any{"index": 7})
	if len(left) != 2 || left[0] < time.Minute || left[1] < time.Minute {
		t.Errorf("there were %v left", left)
	}
}
