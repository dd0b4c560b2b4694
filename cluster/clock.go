package cluster

import (
	"fmt"
	"sync"
	"time"

	"berth/compute"
)

// What nodes have to agree about they reckon in the cluster's time, whatever the
// clocks of their machines say. But people read what these say elsewhere. So each
// node compares its clock with the cluster's time, by the leader's answers to its
// heartbeats, and says so when it is off.

// clockRepeat is how long the log says nothing more about a clock that is off.
const clockRepeat = 10 * time.Minute

// driftsFor is how many measurements in a row must show that a clock drifts: one
// may be of a node that stood still.
const driftsFor = 3

// skew is by how much one clock is ahead of another one.
type skew struct {
	mu    sync.Mutex
	ahead time.Duration // Below 0 when it is behind; 0 while it is not known.
	told  time.Time     // When the log last said that it is off; zero while it is not.

	drifts  int  // Measurements in a row that show it.
	drifted bool // The log has said so.
}

// last returns what was measured last.
func (s *skew) last() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ahead
}

// note keeps a measurement, and reports whether the clock is off, and whether
// that is to be said.
func (s *skew) note(ahead time.Duration, at time.Time) (off, say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := !s.told.IsZero()
	s.ahead, off = ahead, compute.ClockOff(ahead)
	switch {
	case !off:
		s.told = time.Time{}
		return false, was
	case !was || at.Sub(s.told) >= clockRepeat:
		s.told = at
		return true, true
	}
	return true, false
}

// drift takes the last measurement, of a call that took so long, and reports
// whether the clock drifts: is less off than note says, and more than
// compute.ClockDrift, wherever in that time the answer was made. It is right again
// at half of that, likewise. Say is whether either is to be said.
func (s *skew) drift(took time.Duration) (drifts, say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ahead, was := s.ahead.Abs(), s.drifted
	switch {
	case compute.ClockOff(ahead):
		s.drifts, s.drifted = 0, false // Which is said already.
		return false, false
	case ahead-took/2 > compute.ClockDrift:
		s.drifts++
	case ahead+took/2 <= compute.ClockDrift/2:
		s.drifts, s.drifted = 0, false
	case !was:
		s.drifts = 0
	}
	s.drifted = s.drifted || s.drifts >= driftsFor
	return s.drifted, s.drifted != was
}

// measured returns by how much the clock that says here was ahead of one that
// said there within the last took: 0 when the two may be the same.
func measured(here, there time.Time, took time.Duration) time.Duration {
	ahead := here.Sub(there) - took/2
	if ahead.Abs() <= took/2 {
		return 0
	}
	return ahead
}

// compareClocks takes the cluster's time from the leader's answer to a heartbeat
// that took so long, and compares this node's clock with it. An answer without the
// time says nothing.
func (c *Cluster) compareClocks(leader compute.NodeID, answer []byte, took time.Duration) {
	var said heartbeatAnswer
	if len(answer) == 0 || c.codec.Unmarshal(answer, &said) != nil {
		return // The leader does not know the time yet, or is of an older version.
	}
	var ahead time.Duration
	if leader == c.id {
		ahead = c.time.ahead()
	} else {
		there := time.UnixMilli(said.At)
		c.time.follow(there.Add(took / 2))
		ahead = measured(c.cfg.Now().Round(0), there, took)
	}
	c.metrics.ahead.Set(ahead.Seconds())
	off, say := c.skew.note(ahead, time.Now()) //nolint:forbidigo // A stopwatch.
	switch {
	case off && say:
		c.logger.Error("the clock of this machine is not the cluster's", "leader", leader, "err", fmt.Sprintf(
			"it is %s: set the one that is wrong (timedatectl set-ntp true); until then this node reckons with the cluster's",
			compute.AheadText(ahead)))
	case say:
		c.logger.Info("the clock of this machine is the cluster's again", "leader", leader)
	}
	if leader == c.id {
		took = 0
	}
	c.tellDrift(leader, ahead, took)
}

// tellDrift says when this node's clock begins to drift, and when it no longer
// does.
func (c *Cluster) tellDrift(leader compute.NodeID, ahead, took time.Duration) {
	switch drifts, say := c.skew.drift(took); {
	case drifts && say:
		c.logger.Warn("the clock of this machine drifts from the cluster's", "leader", leader, "err", fmt.Sprintf(
			"it is %s of that, which follows the leader's: see which of the two is wrong (timedatectl)",
			compute.AheadText(ahead)))
	case say:
		c.logger.Info("the clock of this machine no longer drifts", "leader", leader)
	}
}
