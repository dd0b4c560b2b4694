package gpu

import (
	"context"
	"time"

	"berth/compute"
)

// pollTimeout is how long an extra round may take, so that a driver that hangs
// does not block callers.
const pollTimeout = time.Second

// Watch starts a tally of the GPUs that shares names, for an attempt whose code
// started at from, with an extra round of readings. Unwatch ends it.
func (s *Sampler) Watch(shares []compute.GPUShare, from compute.Instant) *Tally {
	t := NewTally(shares, from)
	s.mu.Lock()
	s.tallies[t] = true
	s.mu.Unlock()
	s.poke()
	return t
}

// Unwatch ends a tally and returns the usage of the GPUs until the code ended.
func (s *Sampler) Unwatch(t *Tally, end compute.Instant) compute.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tallies, t)
	return t.Usage(end)
}

// Poll has every device read at once and waits for that, at most a second.
func (s *Sampler) Poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	s.mu.Lock()
	round := s.round
	s.mu.Unlock()
	s.poke()
	select {
	case <-round:
	case <-ctx.Done():
	}
}

// poke requests a round. A pending request serves all callers.
func (s *Sampler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
