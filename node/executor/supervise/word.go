package supervise

import (
	"errors"

	"berth/boottime"
	"berth/compute"
)

// errNotStarted is returned when the cause of the end was set before the start.
var errNotStarted = errors.New("the attempt was to end before its code started")

// mayStart returns an error, and records the cause, when the code must not start.
// A stop or a preemption was requested, or the lease ran out and the cluster may
// have rescheduled the attempt elsewhere.
func (s *supervisor) mayStart() error {
	for {
		select {
		case c := <-s.commands:
			if err := s.heed(c); err != nil {
				return err
			}
			continue
		default:
		}
		if s.lease.Over(boottime.Now()) {
			s.blame(causeNodeLost)
		}
		if s.cause != causeNone {
			return errNotStarted
		}
		return nil
	}
}

// heed handles a command that arrives before the code starts.
func (s *supervisor) heed(c command) error {
	switch {
	case c.yield:
		s.blame(causePreempted)
	case c.stop == compute.StopHard:
		s.blame(causeAborted)
	case c.stop == compute.StopGraceful:
		s.blame(causeStopped)
	default:
		return s.touch(c.contact)
	}
	return nil
}
