package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
)

// A server that rejoined with an empty replica is behind until it has the entry
// that took its vote. Until then it receives old configurations, in which it may
// be a voter, perhaps the only one. So it neither stands for election nor votes,
// and is not promoted. With election timeouts this long raft never forgets a
// leader, so the leader counts as known only while it is heard.

const (
	catchUpTick   = 100 * time.Millisecond
	electionNever = 1000 * time.Hour // Timeouts of a server that must not stand for election.
	unheardFor    = 2                // Heartbeat timeouts after which a server that is behind knows no leader.
)

// catchUp keeps a server that rejoined with an empty replica from voting until it has caught up.
type catchUp struct{ *Cluster }

// raftConfigAtStart returns the settings with which this server starts.
func (c catchUp) raftConfigAtStart() *raft.Config {
	cfg := c.raftNode.raftConfig()
	c.leaderTimeout = unheardFor * cfg.HeartbeatTimeout
	if c.dir.Record().CatchUp > 0 {
		c.behind.Store(true)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = electionNever, electionNever
	}
	return cfg
}

// heardRecently reports whether the leader that raft knows was heard recently.
func (c catchUp) heardRecently() bool {
	return !c.behind.Load() || time.Since(c.raft.LastContact()) <= c.leaderTimeout
}

// participateOnceCaughtUp lets a server that is behind vote and stand for election
// once it has the entry that took its vote.
func (c catchUp) participateOnceCaughtUp() {
	if !c.behind.Load() {
		return
	}
	until := c.dir.Record().CatchUp
	c.work.Go(func() {
		ticker := time.NewTicker(catchUpTick)
		defer ticker.Stop()
		for c.raft.LastIndex() < until || !c.participate() {
			select {
			case <-c.closed:
				return
			case <-ticker.C:
			}
		}
	})
}

// participate lets this server vote and stand for election, and reports whether it
// succeeded.
func (c catchUp) participate() bool {
	usual := c.raftNode.raftConfig()
	err := c.raftNode.reloadRaft(func(now *raft.ReloadableConfig) {
		now.HeartbeatTimeout, now.ElectionTimeout = usual.HeartbeatTimeout, usual.ElectionTimeout
	})
	if err != nil {
		c.logger.Error("caught up, but election timeouts not restored", "err", err)
		return false
	}
	c.behind.Store(false)
	if err := c.dir.Update(func(r *datadir.Record) { r.CatchUp = 0 }); err != nil {
		c.logger.Warn("catch-up marker not cleared", "err", err)
	}
	return true
}
