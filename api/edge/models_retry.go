package edge

import (
	"context"
	"time"

	"berth/compute"
	"berth/loop"
)

// Tries while replicas that are recorded as ready do not answer: they have ended, and
// the record follows.
const (
	retryPause = 100 * time.Millisecond
	retryMost  = 50
)

// retries reports whether a request that no replica answered is tried again, and waits
// before that for a newer view. It counts the tries.
func (c *modelCall) retries(ctx context.Context, err error, tries *int) bool {
	*tries++
	if compute.CodeOf(err) != compute.CodeUnavailable || isEngineTimeout(err) || ctx.Err() != nil || *tries > retryMost {
		return false
	}
	if *tries > 1 && !loop.Sleep(ctx, retryPause) {
		return false
	}
	return c.renew() == nil //nolint:contextcheck // It lives as the server does.
}
