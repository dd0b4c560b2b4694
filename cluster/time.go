package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/boottime"
	"berth/cluster/raftconf"
	"berth/compute"
)

// The cluster's time is what the leader stamps entries with, and what all nodes
// reckon with. It is no machine's clock: each leader takes it over from the one
// before and counts it on a stopwatch, so that a clock that is set, or wrong,
// lengthens and shortens nothing. The clocks of most voters only lead it, slowly.
const (
	slewShare = 10              // It runs by at most a tenth faster or slower than a stopwatch.
	timeWait  = 3 * time.Second // For the clocks of all voters, where no leader before said what time it is.
)

// clusterTime is the cluster's time as this node has it.
type clusterTime struct {
	clock func() time.Time     // Of this machine. It may be wrong, and be set.
	watch func() time.Duration // Nobody can set it.
	known chan struct{}        // Closed once a leader, or the clocks of voters, said what time it is.

	mu  sync.Mutex
	at  time.Time     // What it was; zero while there is nothing to go by.
	on  time.Duration // By the stopwatch, when it was.
	off time.Duration // By how much it has to move still.
	set bool
}

func newClusterTime(clock func() time.Time) *clusterTime {
	return &clusterTime{clock: clock, watch: boottime.Now, known: make(chan struct{})}
}

// now returns the time; this machine's while there is nothing to go by.
func (t *clusterTime) now() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.IsZero() {
		return t.here()
	}
	return t.pass()
}

// stamp returns the time for an entry, zero while there is nothing to go by: the
// state's time stays then what it is.
func (t *clusterTime) stamp() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at.IsZero() {
		return time.Time{}
	}
	return t.pass()
}

// here returns the time of this machine, for comparing with times of others.
func (t *clusterTime) here() time.Time { return t.clock().Round(0) }

// pass lets the time go on to what it is now. The caller holds the lock.
func (t *clusterTime) pass() time.Time {
	on := t.watch()
	passed := max(on-t.on, 0)
	move := min(max(t.off, -passed/slewShare), passed/slewShare)
	t.at, t.on, t.off = t.at.Add(passed+move), on, t.off-move
	return t.at
}

// ahead returns by how much the clock of this machine is ahead of it.
func (t *clusterTime) ahead() time.Duration { return t.here().Sub(t.now()) }

// agreed returns the time, false while neither a leader nor the clocks of voters
// have said what it is.
func (t *clusterTime) agreed() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.set {
		return time.Time{}, false
	}
	return t.pass(), true
}

// follow takes the time that the leader says it is.
func (t *clusterTime) follow(said time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at, t.on, t.off = said.Round(0), t.watch(), 0
	t.agree()
}

// begin begins to lead, once all of the terms before was applied. The state's time,
// which never goes back, is the least that it can be; where no leader before said
// more, it is that.
func (t *clusterTime) begin(state time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	state = state.Round(0)
	switch {
	case !t.at.IsZero():
		if now := t.pass(); now.Before(state) {
			t.at = state
		}
	case state.IsZero():
		t.at, t.on = t.here(), t.watch()
	default:
		t.at, t.on = state, t.watch()
	}
}

// lead lets the clocks of voters, this leader's and by how much those of others
// are ahead of the time, lead it towards what most of them say. Where no leader
// before has said what time it is, it waits for all of them and jumps there, but
// never back. It returns by how much the time is not there, false while too few
// clocks are known.
func (t *clusterTime) lead(others []time.Duration, voters int) (left time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clocks := len(others) + 1
	if t.at.IsZero() || 2*clocks <= voters || !t.set && clocks < voters {
		t.off = 0
		return 0, false
	}
	own := t.here().Sub(t.pass())
	move := least(append(slices.Clone(others), own))
	if !compute.ClockOff(own - move) {
		move = own // It needs no way in between.
	}
	if !t.set && move > 0 {
		t.at, move = t.at.Add(move), 0
	}
	t.off = move
	t.agree()
	return move, true
}

// agree notes that the time is known. The caller holds the lock.
func (t *clusterTime) agree() {
	if !t.set {
		t.set = true
		close(t.known)
	}
}

// least returns the smallest move after which no majority of the clocks, by how
// much they are ahead, is on one side.
func least(ahead []time.Duration) time.Duration {
	slices.Sort(ahead)
	return min(max(ahead[(len(ahead)-1)/2], 0), ahead[len(ahead)/2])
}

// Now returns the cluster's time, for what nodes have to agree about. Before this
// node has heard of it, it is the machine's.
func (c *Cluster) Now() time.Time { return c.time.now() }

// AwaitTime waits, in a term of this node's, until the cluster's time is known. It
// is at once where a leader has answered this process with it before. Otherwise, as
// when all servers were started anew, it takes the clocks of them all, after a while
// those of a majority, and without one this machine's.
func (c *Cluster) AwaitTime(ctx context.Context) {
	timer := time.NewTimer(timeWait)
	defer timer.Stop()
	select {
	case <-c.time.known:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	others, voters := c.clocks()
	if 2*(len(others)+1) <= voters {
		others = nil
	}
	c.time.lead(others, len(others)+1)
}

// leadTime has the clocks of the voters lead the cluster's time, and says so when
// they have far to go.
func (c *Cluster) leadTime() {
	left, known := c.time.lead(c.clocks())
	if !known {
		return
	}
	off, say := c.drift.note(-left, time.Now()) //nolint:forbidigo // A stopwatch.
	switch {
	case off && say:
		c.logger.Warn("the cluster's time is not that of most servers", "err", fmt.Sprintf(
			"it is %s and runs a tenth faster or slower until it is right", compute.AheadText(-left)))
	case say:
		c.logger.Info("the cluster's time is that of most servers again")
	}
}

// clocks returns by how much the clocks of the other voters that are heard are
// ahead of the cluster's time, and how many voters there are.
func (c *Cluster) clocks() (ahead []time.Duration, voters int) {
	now := c.time.now()
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if clock, known := c.heartbeats.clockOf(raftconf.NodeOf(s.ID)); known {
			ahead = append(ahead, clock.Sub(now))
		}
	}
	return ahead, voters
}
