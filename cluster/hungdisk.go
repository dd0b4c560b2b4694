package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/cluster/disk"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
)

// When a leader with a hung disk asks the other voters about their disks.
const (
	hungAfter = time.Second // A write that takes longer is hung.
	hungRetry = 500 * time.Millisecond
)

// diskHandOver is the knowledge of a leader with a hung disk about the other voters. The
// leader ends only so that another one can lead. When all disks are on one slow
// storage and hang, ending gains nothing.
type diskHandOver struct {
	mu     sync.Mutex
	asking bool
	askAt  time.Time // Not before.
	able   bool      // A quorum of voters without this one has written to disk since the write hung.
}

// hungDisk watches for writes that hang.
type hungDisk struct{ *Cluster }

// watchDisk ends the process when a write hangs for too long.
func (c hungDisk) watchDisk(ctx context.Context) error {
	ticker := time.NewTicker(disk.WatchTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			if err := c.replica.Watchdog.Check(now, c.writeLimit(ctx, now)); err != nil {
				c.fatal(err)
				return err
			}
			// Without ticks an idle process is not woken.
			if access := c.replica.Watchdog.Idle(); access != nil {
				ticker.Stop()
				select {
				case <-ctx.Done():
					return nil
				case <-access:
				}
				ticker.Reset(disk.WatchTick)
			}
		}
	}
}

// writeLimit returns how long a write may hang before this process ends.
func (c hungDisk) writeLimit(ctx context.Context, now time.Time) time.Duration {
	hangs := c.raft.State() == raft.Leader && c.replica.Watchdog.Pending() >= hungAfter
	r := &c.diskHandOver
	r.mu.Lock()
	defer r.mu.Unlock()
	if !hangs {
		r.able = false
		return disk.AppendLimitFollower
	}
	if r.able {
		return disk.AppendLimitLeader
	}
	if !r.asking && !now.Before(r.askAt) {
		r.asking, r.askAt = true, now.Add(hungRetry)
		c.work.Go(func() { c.askOtherDisks(ctx) })
	}
	return disk.AppendLimitFollower
}

// askOtherDisks asks whether another voter can lead.
func (c hungDisk) askOtherDisks(ctx context.Context) {
	able := c.otherDisksWork(ctx)
	c.diskHandOver.mu.Lock()
	c.diskHandOver.asking, c.diskHandOver.able = false, able
	c.diskHandOver.mu.Unlock()
	if !able { // The log may be on the hung disk: log last.
		c.logger.Warn("disk hung, and too few other voters have a working one")
	}
}

// otherDisksWork asks the other voters to write to their disks, and reports
// whether a quorum of them did at once.
func (c hungDisk) otherDisksWork(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var others []compute.NodeID
	voters := 0
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if id := raftconf.NodeOf(s.ID); id != c.id {
			others = append(others, id)
		}
	}
	wrote := make(chan bool, len(others)) // Buffered for all, so that late answers never block.
	for _, id := range others {
		c.work.Go(func() {
			_, err := c.Call(ctx, id, methodProbe, nil)
			// An older version does not know the method.
			wrote <- err == nil || compute.CodeOf(err) == compute.CodeNotFound
		})
	}
	able := 0
	for range others {
		if <-wrote {
			able++
		}
		if able >= raftconf.Quorum(voters) {
			return true
		}
	}
	return false
}

// handleProbe answers once it has written a few bytes to this server's disk.
func (c hungDisk) handleProbe(context.Context, rpc.Peer, []byte) ([]byte, error) {
	done, err := c.replica.Watchdog.TryProbe()
	switch {
	case err != nil:
		return nil, compute.Errorf(compute.CodeUnavailable, "The disk does not take a write: %w", err)
	case !done:
		return nil, compute.Errorf(compute.CodeUnavailable, "An earlier write to the disk has not returned.")
	}
	return nil, nil
}
