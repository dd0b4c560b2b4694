package edge

import (
	"context"
	"errors"
	"net/http"
	"time"

	"berth/api/edge/openai"
	"berth/compute"
	"berth/loop"
)

// Tries while replicas that are recorded as ready do not answer: they have ended, and
// the record follows.
const (
	retryPause = 100 * time.Millisecond
	retryMost  = 50
)

// failedWait is for another replica, after one failed that had the request. A longer wait
// would hand the request, which may be the reason, to each replica that restarts.
const failedWait = 5 * time.Second

// retries reports whether a request that no replica answered is tried again, and reads a
// newer view before that: without a leader, which may have been on the node of the replica,
// the one of this node. It counts the tries.
func (c *modelCall) retries(ctx context.Context, err error, tries *int) bool {
	*tries++
	if c.failed > 0 && c.failedAt.IsZero() {
		c.failedAt = c.cfg.Stopwatch()
	}
	if c.failed >= compute.MaxReplicaFailures || c.readyWait() <= 0 {
		return false
	}
	if compute.CodeOf(err) != compute.CodeUnavailable || openai.IsTimeout(err) || isKept(err) || ctx.Err() != nil ||
		*tries > retryMost {
		return false
	}
	if *tries > 1 && !loop.Sleep(ctx, retryPause) {
		return false
	}
	return c.freshen() == nil //nolint:contextcheck // It lives as the server does.
}

// isKept reports whether a request was sent to no replica, because some have failed with it
// before.
func isKept(err error) bool {
	e, ok := errors.AsType[*compute.Error](err)
	return ok && e.Detail == compute.DetailReplicaLost
}

// readyWait returns how long the request waits for a ready replica.
func (c *modelCall) readyWait() time.Duration {
	wait := max(c.cfg.ModelLimits.ResumeWait, time.Second)
	if c.failed > 0 {
		wait = min(wait, failedWait-c.cfg.Stopwatch().Sub(c.failedAt))
	}
	return wait
}

// lostOr returns the error of a request that no replica answered: replica_lost if one of
// them failed with it, and err otherwise.
func (c *modelCall) lostOr(err error) error {
	if c.failed == 0 || compute.CodeOf(err) != compute.CodeUnavailable || openai.IsTimeout(err) || isKept(err) {
		return err
	}
	return compute.Errorf(compute.CodeUnavailable,
		"A replica failed while it had the request, and no other one answered. "+
			"If this repeats, the engine cannot answer this request: %w", err).Named(compute.DetailReplicaLost).Retry(failedWait)
}

// inferInTime has a replica answer a request, within ModelLimits.AnswerWait.
func (c *modelCall) inferInTime(req *http.Request, body []byte) (*http.Response, error) {
	return openai.InTime(req, c.cfg.ModelLimits.AnswerWait, func(req *http.Request) (*http.Response, error) {
		return c.cfg.Models.Infer(c.r.View, c.model, req, body, c.asked.Prefix, &c.failed)
	})
}
