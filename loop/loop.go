package loop

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Sleep waits for d or for the end of ctx, and reports whether ctx is still
// alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil || d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Every calls do at once and then once a period, until ctx ends. A call that
// takes longer than a period delays the next one; missed ticks are dropped. Ticks are at
// multiples of the period on the clock, so that loops of one process wake it together; see Spread.
func Every(ctx context.Context, period time.Duration, do func()) {
	OnChange(ctx, period, nil, do)
}

// OnChange calls do at once, at every change and at least once a period, until
// ctx ends. Before each call it asks changed for the channel that the next
// change closes or sends to, so that a change during the call is not missed.
func OnChange(ctx context.Context, period time.Duration, changed func() <-chan struct{}, do func()) {
	tick := time.NewTimer(untilTick(period))
	defer tick.Stop()
	for ctx.Err() == nil {
		var change <-chan struct{}
		if changed != nil {
			change = changed()
		}
		do()
		select {
		case <-ctx.Done():
		case <-tick.C:
			tick.Reset(untilTick(period))
		case <-change:
		}
	}
}

// phase is how far the ticks of this process lie before multiples of their periods.
var phase atomic.Int64 //nolint:gochecknoglobals // One for all loops of the process.

// Spread moves the ticks of all loops that are not ticking yet to a random place, the same for all, so
// that machines whose clocks agree do not ask others all at once.
func Spread() { phase.Store(int64(rand.N(time.Hour))) }

// untilTick returns the time to the next multiple of a period, or to the one behind it if that is
// nearer than half a period.
func untilTick(period time.Duration) time.Duration {
	now := time.Now().Add(time.Duration(phase.Load())) //nolint:forbidigo // Only where ticks lie depends on it.
	until := now.Truncate(period).Add(period).Sub(now)
	if until < period/2 {
		until += period
	}
	return until
}

// Until calls done at once and then once a period, until it returns true. It
// returns ctx's error if ctx ends first.
func Until(ctx context.Context, period time.Duration, done func() bool) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}
