package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/time/rate"

	"berth/cluster/disk"
	"berth/cluster/file"
)

// ScrubRate is how many bytes a second a scrub reads at most.
const ScrubRate = 8 << 20

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

// scrubOnce reads all of the replica. A damaged log ends the process; a damaged
// snapshot is replaced by a new one, when there is enough for that.
func (c *Cluster) scrubOnce(ctx context.Context) error {
	limit := rate.NewLimiter(ScrubRate, ScrubRate/8)
	pace := func(bytes int) error { return limit.WaitN(ctx, min(bytes, limit.Burst())) }
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
	dir, err := c.files.asideDir(c.cfg.Now())
	if err != nil {
		return err
	}
	if err := file.Write(filepath.Join(dir, damageFile), []byte(reason.Error()+"\n")); err != nil {
		return err
	}
	for _, id := range damaged {
		if err := c.snapshots.SetAside(id, dir); err != nil {
			return fmt.Errorf("set damaged snapshot aside: %w", err)
		}
	}
	c.logger.Warn("damaged snapshot set aside", "err", fmt.Sprintf("it is in %s", dir))
	return c.files.pruneDamaged()
}

// asideDir makes the directory for what is set aside now.
func (f *files) asideDir(now time.Time) (string, error) {
	dir := f.path(quarantineDir, now.UTC().Format("20060102T150405.000Z"))
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("make quarantine: %w", err)
	}
	return dir, file.SyncDir(filepath.Dir(dir))
}
