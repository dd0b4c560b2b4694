package supervise

import (
	"errors"

	"berth/boottime"
	"berth/compute"
)

// errNotStarted means that the attempt ended before its code started.
var errNotStarted = errors.New("attempt ended before its code started")

// mayStart returns an error, and records the cause, when the code must not start.
// A stop or a preemption was requested, or the lease ran out and the cluster may
// have rescheduled the attempt elsewhere.
func (s *supervisor) mayStart() error {
	for waits := s.early != nil; waits; {
		select {
		case c := <-s.commands:
			if err := s.handleEarly(c); err != nil {
				return err
			}
		case <-s.early:
			waits = false
		}
	}
	for {
		select {
		case c := <-s.commands:
			if err := s.handleEarly(c); err != nil {
				return err
			}
			continue
		default:
		}
		if s.lease.Over(boottime.Now()) {
			s.setCause(causeNodeLost)
		}
		if s.cause != causeNone {
			return errNotStarted
		}
		return nil
	}
}

// handleEarly handles a command that arrives before the code starts.
func (s *supervisor) handleEarly(c command) error {
	switch {
	case c.note != "":
		s.note(c.note)
	case c.preempt:
		s.setCause(causePreempted)
	case c.credits:
		s.payUntil(c.paid)
	case c.stop == compute.StopHard:
		s.setCause(causeAborted)
	case c.stop == compute.StopGraceful:
		s.setCause(causeStopped)
	default:
		return s.renew(c.contact)
	}
	return nil
}
