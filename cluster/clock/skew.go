package clock

import (
	"sync"
	"time"

	"berth/compute"
)

const (
	logRepeat     = 10 * time.Minute // The log repeats that a clock is off at most this often.
	driftConfirms = 3                // Measurements in a row: one may be of a node that was paused.
)

// skew is by how much one clock is ahead of another one.
type skew struct {
	mu     sync.Mutex
	ahead  time.Duration // Negative when it is behind; 0 while it is unknown.
	logged time.Time     // When the log last reported it as off; zero while it is not.

	drifts  int  // Measurements in a row that show drift.
	drifted bool // The log has reported it.
}

// last returns the last measurement.
func (s *skew) last() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// note records a measurement. It reports whether the clock is off, and whether
// to log that or its end.
func (s *skew) note(ahead time.Duration, at time.Time) (off, report bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := !s.logged.IsZero()
	s.ahead, off = ahead, compute.ClockOff(ahead)
	switch {
	case !off:
		s.logged = time.Time{}
		return false, was
	case !was || at.Sub(s.logged) >= logRepeat:
		s.logged = at
		return true, true
	}
	return true, false
}

// drift judges the last measurement, of a call that took the given time. A
// clock drifts when it is not off, as note defines it, and differs by more than
// compute.ClockDrift wherever in that time the answer was made. The drift ends
// below half of that, likewise. It reports whether to log a change.
func (s *skew) drift(took time.Duration) (drifts, report bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead, was := s.ahead.Abs(), s.drifted
	switch {
	case compute.ClockOff(ahead):
		s.drifts, s.drifted = 0, false // note reports it.
		return false, false
	case ahead-took/2 > compute.ClockDrift:
		s.drifts++
	case ahead+took/2 <= compute.ClockDrift/2:
		s.drifts, s.drifted = 0, false
	case !was:
		s.drifts = 0
	}
	s.drifted = s.drifted || s.drifts >= driftConfirms
	return s.drifted, s.drifted != was
}

// difference returns by how much the clock that read here was ahead of one that
// read there at some instant within the last took: 0 when the two may agree.
func difference(here, there time.Time, took time.Duration) time.Duration {
	ahead := here.Sub(there) - took/2
	if ahead.Abs() <= took/2 {
		return 0
	}
	return ahead
}
