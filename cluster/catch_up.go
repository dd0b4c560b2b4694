package cluster

import (
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/datadir"
)

// A server that came in empty is behind until it has what took its vote. Until
// then the configurations that it is sent are old ones, in which it may vote,
// perhaps alone. So it neither stands for election nor votes, and nobody makes
// it a voter. Raft would forget the leader only to stand itself, which is why
// what it knows of one counts while that one is heard.

const (
	catchUpTick   = 100 * time.Millisecond
	electionNever = 1000 * time.Hour // The timeouts of a server that must not stand for election.
	unheardFor    = 2                // Heartbeat timeouts, after which a server that is behind knows no leader.
)

// catchUp keeps a server that rejoined with an empty replica from voting until it has caught up.
type catchUp struct{ *Cluster }

// raftConfigAtStart returns the settings with which this server begins.
func (c catchUp) raftConfigAtStart() *raft.Config {
	cfg := c.raftNode.raftConfig()
	c.leaderTimeout = unheardFor * cfg.HeartbeatTimeout
	if c.dir.Record().CatchUp > 0 {
		c.behind.Store(true)
		cfg.HeartbeatTimeout, cfg.ElectionTimeout = electionNever, electionNever
	}
	return cfg
}

// heardOfLate reports whether what raft says of the leader can be believed.
func (c catchUp) heardRecently() bool {
	return !c.behind.Load() || time.Since(c.raft.LastContact()) <= c.leaderTimeout
}

// takePartWhenCaughtUp makes a server that came in empty one like the others
// once it has what took its vote.
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

// takePart lets this server vote and stand for election, and reports whether
// that is done.
func (c catchUp) participate() bool {
	usual := c.raftNode.raftConfig()
	err := c.raftNode.reloadRaft(func(now *raft.ReloadableConfig) {
		now.HeartbeatTimeout, now.ElectionTimeout = usual.HeartbeatTimeout, usual.ElectionTimeout
	})
	if err != nil {
		c.logger.Error("a server that has caught up stands for no election yet", "err", err)
		return false
	}
	c.behind.Store(false)
	if err := c.dir.Update(func(r *datadir.Record) { r.CatchUp = 0 }); err != nil {
		c.logger.Warn("not written down that this server has caught up: at its next start it looks again", "err", err)
	}
	return true
}
