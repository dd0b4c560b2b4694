package clock

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/boottime"
	"berth/compute"
)

const (
	slewShare = 10              // The time runs by at most a tenth faster or slower than boottime.
	awaitFor  = 3 * time.Second // For the clocks of all voters, where no earlier leader reported the time.
)

// Config configures a Clock.
type Config struct {
	Local  func() time.Time // The machine's clock.
	Logger *slog.Logger
	Ahead  prometheus.Gauge // By how many seconds the machine's clock is ahead.

	// Voters returns by how much the clocks of the other voters that were heard
	// lately are ahead of now, and how many voters there are. Nil for one voter.
	Voters func(now time.Time) (ahead []time.Duration, voters int)
}

// Clock is the cluster's time as this node knows it. Its methods may be called
// from any goroutine.
type Clock struct {
	cfg    Config
	watch  func() time.Duration // Boottime: nobody can set it.
	agreed chan struct{}        // Closed once a leader, or the voters' clocks, gave the time.
	local  skew                 // Skew of the machine's clock against the cluster's time.
	voters skew                 // Skew of the cluster's time against most voters' clocks, while this node leads.

	mu     sync.Mutex
	at     time.Time     // The cluster's time at the instant on; zero while unknown.
	on     time.Duration // Boottime.
	offset time.Duration // Correction that is still to be applied.
	set    bool          // agreed is closed.
}

// New returns a clock that follows the machine's until it learns the time.
func New(cfg Config) *Clock {
	if cfg.Voters == nil {
		cfg.Voters = func(time.Time) ([]time.Duration, int) { return nil, 1 }
	}
	return &Clock{cfg: cfg, watch: boottime.Now, agreed: make(chan struct{})}
}

// Now returns the cluster's time, or the machine's before this node has learnt
// it.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return c.machine()
	}
	return c.advance()
}

// Stamp returns the time for an entry. It is zero while the time is unknown:
// then the state keeps the time that it has.
func (c *Clock) Stamp() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() {
		return time.Time{}
	}
	return c.advance()
}

// Agreed returns the time, or false while neither a leader nor the voters'
// clocks have given it.
func (c *Clock) Agreed() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.set {
		return time.Time{}, false
	}
	return c.advance(), true
}

// Ahead returns by how much the machine's clock was ahead when it was last
// compared.
func (c *Clock) Ahead() time.Duration { return c.local.last() }

// machine returns the machine's time without its monotonic reading.
func (c *Clock) machine() time.Time { return c.cfg.Local().Round(0) }

// advance moves the time to the present and returns it. The caller holds mu.
func (c *Clock) advance() time.Time {
	on := c.watch()
	passed := max(on-c.on, 0)
	step := min(max(c.offset, -passed/slewShare), passed/slewShare)
	c.at, c.on, c.offset = c.at.Add(passed+step), on, c.offset-step
	return c.at
}

// follow sets the time to the leader's.
func (c *Clock) follow(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at, c.on, c.offset = at.Round(0), c.watch(), 0
	c.agree()
}

// agree records that the time is agreed. The caller holds mu.
func (c *Clock) agree() {
	if !c.set {
		c.set = true
		close(c.agreed)
	}
}

// Begin begins a term of this node, once it has applied all entries of earlier
// terms. The state's time never goes back, so the cluster's time is at least
// that; it is that where no earlier leader reported a later one.
func (c *Clock) Begin(state time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state = state.Round(0)
	switch {
	case !c.at.IsZero():
		if now := c.advance(); now.Before(state) {
			c.at = state
		}
	case state.IsZero():
		c.at, c.on = c.machine(), c.watch()
	default:
		c.at, c.on = state, c.watch()
	}
}

// steer slews the time of this leader towards most voters' clocks: its own, and
// the others', given by how much they are ahead. Where no earlier leader
// reported the time, it waits for all voters and steps there, but never back.
// It returns the remaining correction, or false while too few clocks are known.
func (c *Clock) steer(others []time.Duration, voters int) (left time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	clocks := len(others) + 1
	if c.at.IsZero() || 2*clocks <= voters || !c.set && clocks < voters {
		c.offset = 0
		return 0, false
	}
	own := c.machine().Sub(c.advance())
	move := smallestMove(append(slices.Clone(others), own))
	if !compute.ClockOff(own - move) {
		move = own // A majority that is this close needs no median.
	}
	if !c.set && move > 0 {
		c.at, move = c.at.Add(move), 0
	}
	c.offset = move
	c.agree()
	return move, true
}

// smallestMove returns the smallest move after which no majority of the clocks
// is on one side.
func smallestMove(ahead []time.Duration) time.Duration {
	slices.Sort(ahead)
	return min(max(ahead[(len(ahead)-1)/2], 0), ahead[len(ahead)/2])
}

// Steer steers the time of this leader by the voters' clocks, and logs when
// much is left to correct.
func (c *Clock) Steer() {
	left, known := c.steer(c.cfg.Voters(c.Now()))
	if !known {
		return
	}
	off, report := c.voters.note(-left, time.Now()) //nolint:forbidigo // A stopwatch.
	switch {
	case off && report:
		c.cfg.Logger.Warn("cluster time differs from most servers' clocks, slewing", "ahead", compute.AheadText(-left))
	case report:
		c.cfg.Logger.Info("cluster time agrees with most servers' clocks again")
	}
}

// Await waits, in a term of this node, until the cluster's time is agreed. It
// returns at once when a leader has reported the time to this process before.
// Otherwise, as after a restart of all servers, it waits for the clocks of all
// voters, after awaitFor uses those of a majority, and without one the
// machine's.
func (c *Clock) Await(ctx context.Context) {
	timer := time.NewTimer(awaitFor)
	defer timer.Stop()
	select {
	case <-c.agreed:
		return
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	others, voters := c.cfg.Voters(c.Now())
	if 2*(len(others)+1) <= voters {
		others = nil
	}
	c.steer(others, len(others)+1)
}

// Follow takes over the time that the leader reported in answer to a call that
// took the given time, and compares the machine's clock with it.
func (c *Clock) Follow(leader compute.NodeID, at time.Time, took time.Duration) {
	c.follow(at.Add(took / 2))
	c.compare(leader, difference(c.machine(), at, took), took)
}

// CompareOwn compares the machine's clock with the time that this node, the
// leader, keeps.
func (c *Clock) CompareOwn(self compute.NodeID) {
	c.compare(self, c.machine().Sub(c.Now()), 0)
}

// compare records by how much the machine's clock is ahead and logs changes.
func (c *Clock) compare(leader compute.NodeID, ahead, took time.Duration) {
	c.cfg.Ahead.Set(ahead.Seconds())
	off, report := c.local.note(ahead, time.Now()) //nolint:forbidigo // A stopwatch.
	switch {
	case off && report:
		c.cfg.Logger.Error("machine clock is wrong, using cluster time", "leader", leader,
			"ahead", compute.AheadText(ahead), "hint", "set the wrong clock (timedatectl set-ntp true)")
	case report:
		c.cfg.Logger.Info("machine clock agrees with cluster time again", "leader", leader)
	}
	switch drifts, report := c.local.drift(took); {
	case drifts && report:
		c.cfg.Logger.Warn("machine clock drifts from cluster time", "leader", leader,
			"ahead", compute.AheadText(ahead), "hint", "find out whether this clock or the leader's drifts (timedatectl)")
	case report:
		c.cfg.Logger.Info("machine clock no longer drifts", "leader", leader)
	}
}
