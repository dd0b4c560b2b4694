package supervise

import (
	"errors"

	"berth/boottime"
	"berth/compute"
)

// errNotStarted is why there is no start when the cause says more.
var errNotStarted = errors.New("the attempt was to end before its code started")

// mayStart returns an error, and notes the cause, when the code must not start
// any more: it was to stop or to make room before, or the cluster, which was not
// reached for so long, may have given the attempt up and placed it elsewhere.
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

// heed takes a command while there is no code yet.
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
