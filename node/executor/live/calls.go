package live

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
)

const (
	callRetryMin = 50 * time.Millisecond
	callRetryMax = 15 * time.Second
	callTimeout  = 30 * time.Second
	inputTimeout = time.Minute // For an input to be found on some node.
)

// Calls repeats calls to the rest of the cluster.
type Calls struct{ retries prometheus.Counter }

// NewCalls returns calls that count their retries.
func NewCalls(retries prometheus.Counter) *Calls { return &Calls{retries: retries} }

// Repeat calls fn until it succeeds, is finally refused, or ctx ends.
func (c *Calls) Repeat(ctx context.Context, fn func(context.Context) error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = callRetryMin, callRetryMax
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err := fn(call)
		if final(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxElapsedTime(0), backoff.WithNotify(func(error, time.Duration) {
		c.retries.Inc()
	}))
	return err
}

// Input is Repeat for what an attempt needs before it starts: it tries for a minute.
func (c *Calls) Input(ctx context.Context, fn func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, inputTimeout)
	defer cancel()
	return c.Repeat(limited, fn)
}

// final reports whether the error is a refusal that a retry cannot change. An upgrade
// changes what servers understand.
func final(err error) bool {
	code := compute.CodeOf(err)
	return (code == compute.CodeConflict || code == compute.CodeNotFound) && !compute.NeedsUpgrade(err)
}
