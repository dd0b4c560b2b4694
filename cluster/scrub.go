package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/time/rate"

	"berth/cluster/datadir"
	"berth/cluster/disk"
)

// ScrubRate is how many bytes a second a scrub reads at most.
const ScrubRate = 8 << 20

// RecountRate is how many bytes of records a second it compares in memory.
const RecountRate = 32 << 20

// scrub reads the replica on disk against its checksums now and then: what is
// seldom read may have been damaged long ago, and is found while the others can
// still replace it.
func (c *Cluster) scrub(ctx context.Context) error {
	every := c.cfg.ScrubEvery
	if every <= 0 {
		return nil
	}
	for pause(ctx, every-every/10+rand.N(every/5)) == nil {
		start := time.Now() //nolint:forbidigo // A stopwatch.
		err := c.scrubOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			c.logger.Error("replica not scrubbed", "err", err)
		default:
			c.metrics.scrubbed.SetToCurrentTime()
			c.logger.Info("replica scrubbed", "took", time.Since(start).Round(time.Millisecond))
		}
	}
	return nil
}

// paceOf returns what waits until so many bytes may be read, at bytes a second.
func paceOf(ctx context.Context, perSecond int) disk.Pace {
	limit := rate.NewLimiter(rate.Limit(perSecond), perSecond/8)
	return func(bytes int) error { return limit.WaitN(ctx, min(bytes, limit.Burst())) }
}

// recount has the state machine compare what it holds with what was stored in it.
// What differs by a fault of memory is not served on: the process ends, and its
// next start reads the state from the disk, where a snapshot of such a state is
// found by its hash.
func (c *Cluster) recount(pace disk.Pace) error {
	if c.cfg.CheckState == nil {
		return nil
	}
	var ended error
	err := c.cfg.CheckState(func(bytes int) error {
		ended = pace(bytes)
		return ended
	})
	if ended != nil {
		return ended
	}
	if err == nil {
		c.noteCount(0)
		return nil
	}
	c.metrics.miscounted.Inc() // Nobody may read it any more.
	c.noteCount(c.dir.Record().Miscounted + 1)
	err = fmt.Errorf("the state in memory is not what was stored: %w; the next start reads it from the disk: "+
		"test the memory of this machine (memtest86+, rasdaemon)", err)
	c.fatal(err)
	return err
}

// noteCount writes down how often the state in memory was wrong of late: the
// process that finds it so ends, and the next ones tell of it.
func (c *Cluster) noteCount(wrong int) {
	if c.dir.Record().Miscounted == wrong {
		return
	}
	if err := c.dir.Update(func(r *datadir.Record) { r.Miscounted = wrong }); err != nil {
		c.logger.Error("not written down how often the state in memory was wrong", "err", err)
	}
}

// showDamage sets the metrics of the damage that processes before this one found.
func (c *Cluster) showDamage() {
	c.metrics.miscounted.Add(float64(c.dir.Record().Miscounted))
	c.showQuarantine()
}

// scrubOnce compares the state in memory and reads all of the replica on disk. A
// wrong state or a damaged log ends the process; a damaged snapshot is replaced by
// a new one, when there is enough for that.
func (c *Cluster) scrubOnce(ctx context.Context) error {
	c.showQuarantine()
	if err := c.recount(paceOf(ctx, RecountRate)); err != nil {
		return err
	}
	pace := paceOf(ctx, ScrubRate)
	if _, err := c.store.Scrub(pace); err != nil {
		return fmt.Errorf("scrub log: %w", err)
	}
	damaged, reason, err := c.snapshots.Scrub(pace)
	if err != nil || len(damaged) == 0 {
		return err
	}
	c.metrics.damaged.Add(float64(len(damaged)))
	c.logger.Error("snapshot damaged", "err", reason)
	return c.mendSnapshots(damaged, reason)
}

// mendSnapshots makes a snapshot in the place of damaged ones and sets these
// aside. When what is left would not make a start, the process ends: at the next
// one the replica is replaced.
func (c *Cluster) mendSnapshots(damaged []string, reason error) error {
	if err := c.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("replace damaged snapshot: %w", err)
	}
	covered, claimed, err := c.snapshots.Covered()
	if err != nil {
		return err
	}
	if err := disk.CheckGap(c.store, covered, claimed); err != nil {
		c.fatal(fmt.Errorf("%w; %w", reason, err))
		return err
	}
	return c.setSnapshotsAside(damaged, reason)
}
