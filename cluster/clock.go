package cluster

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"berth/compute"
)

// Nothing that must not happen rests on the time of the day: leases are counted on
// stopwatches, and the state has a clock of its own. But what people read does,
// and how long a token lasts. So each node compares its clock with the leader's,
// by the answers to its heartbeats, says so when it is off, and reckons with the
// leader's then.

// clockRepeat is how long the log says nothing more about a clock that is off.
const clockRepeat = 10 * time.Minute

// skew is by how much this node's clock is ahead of the leader's.
type skew struct {
	mu    sync.Mutex
	ahead time.Duration // Below 0 when it is behind; 0 while it is not known.
	told  time.Time     // When the log last said that it is off; zero while it is not.
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

// measured returns by how much the clock that says here was ahead of one that
// said there within the last took: 0 when the two may be the same.
func measured(here, there time.Time, took time.Duration) time.Duration {
	ahead := here.Sub(there) - took/2
	if ahead.Abs() <= took/2 {
		return 0
	}
	return ahead
}

// compareClocks compares this node's clock with the leader's, from its answer to a
// heartbeat that took so long.
func (c *Cluster) compareClocks(leader compute.NodeID, answer []byte, took time.Duration) {
	var said heartbeatAnswer
	if len(answer) == 0 || c.codec.Unmarshal(answer, &said) != nil {
		return // It is of an older version.
	}
	ahead := measured(c.cfg.Now(), time.UnixMilli(said.At), took)
	at := time.Now() //nolint:forbidigo // A stopwatch.
	off, say := c.skew.note(ahead, at)
	if leader == c.id {
		c.compareWithOthers(at)
		return
	}
	c.others.note(0, at)
	c.metrics.ahead.Set(ahead.Seconds())
	switch {
	case off && say:
		c.logger.Error("the clock of this machine is not the leader's", "leader", leader, "err", fmt.Sprintf(
			"it is %s: set the one that is wrong (timedatectl set-ntp true); until then this node reckons with the leader's",
			compute.AheadText(ahead)))
	case say:
		c.logger.Info("the clock of this machine is the leader's again", "leader", leader)
	}
}

// compareWithOthers compares the clock of this leader, which the others reckon
// with, with theirs: it may be the one that is wrong. Its time stays the
// cluster's; people have to set it.
func (c *Cluster) compareWithOthers(at time.Time) {
	ahead := -middle(c.heartbeats.otherClocks())
	c.metrics.ahead.Set(ahead.Seconds())
	off, say := c.others.note(ahead, at)
	switch {
	case off && say:
		c.logger.Error("the clock of this machine, which leads, is not that of most others", "err", fmt.Sprintf(
			"it is %s: set the one that is wrong (timedatectl set-ntp true); until then the others reckon with this one",
			compute.AheadText(ahead)))
	case say:
		c.logger.Info("the clock of this machine, which leads, is that of most others again")
	}
}

// middle returns by how much most clocks are ahead at least, below 0 when they
// are behind; 0 when there is no such majority, or only one clock to say so.
func middle(ahead []time.Duration) time.Duration {
	if len(ahead) < 2 {
		return 0
	}
	slices.Sort(ahead)
	low, high := ahead[(len(ahead)-1)/2], ahead[len(ahead)/2]
	switch {
	case low < 0 && high > 0:
		return 0
	case high <= 0:
		return high
	}
	return low
}

// Now returns the time of the day by the leader's clock when this node's is off,
// and else by its own. For what nodes have to agree about.
func (c *Cluster) Now() time.Time {
	now := c.cfg.Now()
	if ahead := c.skew.last(); compute.ClockOff(ahead) {
		return now.Add(-ahead)
	}
	return now
}
