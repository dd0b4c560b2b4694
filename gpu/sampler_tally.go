package gpu

import (
	"context"
	"time"

	"berth/compute"
)

// lookWait is how long an extra round may take; a driver that hangs holds
// nobody up for longer.
const lookWait = time.Second

// Watch begins to tally the GPUs that the shares name, for an attempt whose
// code started at from, with a round of readings of its own. Unwatch ends it.
func (s *Sampler) Watch(shares []compute.GPUShare, from compute.Instant) *Tally {
	t := NewTally(shares, from)
	s.mu.Lock()
	s.tallies[t] = true
	s.mu.Unlock()
	s.poke()
	return t
}

// Unwatch ends a tally and returns what the GPUs did until the code ended.
func (s *Sampler) Unwatch(t *Tally, end compute.Instant) compute.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tallies, t)
	return t.Usage(end)
}

// Look has every device read now, and waits for that, at most a second.
func (s *Sampler) Look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookWait)
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

// poke asks for a round; one that is asked for already serves all.
func (s *Sampler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
