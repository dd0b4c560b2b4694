package replica

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
	"berth/loop"
)

// ScrubRate is how many bytes a second a scrub reads at most.
const ScrubRate = 8 << 20

// memoryRate is how many bytes of records a second a scrub compares in memory.
const memoryRate = 32 << 20

// Scrub checks the replica on disk against its checksums at intervals until ctx
// ends; never when every is not positive. Data that is seldom read may have been
// damaged long ago, and is found while the other servers can still replace it.
func (r *Replica) Scrub(ctx context.Context, every time.Duration) error {
	if every <= 0 {
		return nil
	}
	for loop.Sleep(ctx, every-every/10+rand.N(every/5)) {
		start := time.Now() //nolint:forbidigo // A stopwatch.
		err := r.ScrubOnce(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			r.cfg.Logger.Error("replica not scrubbed", "err", err)
		default:
			r.metrics.scrubbed.SetToCurrentTime()
			r.cfg.Logger.Info("replica scrubbed", "took", time.Since(start).Round(time.Millisecond))
		}
	}
	return nil
}

// throttleTo returns a throttle to a number of bytes per second.
func throttleTo(ctx context.Context, perSecond int) disk.Throttle {
	limit := rate.NewLimiter(rate.Limit(perSecond), perSecond/8)
	return func(bytes int) error { return limit.WaitN(ctx, min(bytes, limit.Burst())) }
}

// checkMemory has the state machine compare the state in memory with the hashes
// that were stored with it. When they differ, memory is faulty and the process
// ends: its next start reads the state from disk, where a snapshot of a faulty
// state is recognized by its hash.
func (r *Replica) checkMemory(throttle disk.Throttle) error {
	if r.cfg.CheckState == nil {
		return nil
	}
	var ended error
	err := r.cfg.CheckState(func(bytes int) error {
		ended = throttle(bytes)
		return ended
	})
	if ended != nil {
		return ended
	}
	if err == nil {
		r.noteMiscounts(0)
		return nil
	}
	r.metrics.miscounted.Inc() // Counted in node.json as well, since nobody may scrape this process again.
	r.noteMiscounts(r.cfg.Dir.Record().Miscounted + 1)
	err = fmt.Errorf("the state in memory is not what was stored: %w; the next start reads it from the disk: "+
		"test the memory of this machine (memtest86+, rasdaemon)", err)
	r.cfg.Fatal(err)
	return err
}

// noteMiscounts saves how often the state in memory was wrong since a scrub last
// found it right: the process that finds it wrong ends, and later ones report it.
func (r *Replica) noteMiscounts(wrong int) {
	if r.cfg.Dir.Record().Miscounted == wrong {
		return
	}
	if err := r.cfg.Dir.Update(func(r *datadir.Record) { r.Miscounted = wrong }); err != nil {
		r.cfg.Logger.Error("memory fault not recorded", "err", err)
	}
}

// ScrubOnce checks the state in memory and all of the replica on disk. A wrong
// state or a damaged log ends the process. A damaged snapshot is replaced by a new
// one if the rest of the replica is enough to start from.
func (r *Replica) ScrubOnce(ctx context.Context) error {
	r.Quarantine.show()
	if err := r.checkMemory(throttleTo(ctx, memoryRate)); err != nil {
		return err
	}
	throttle := throttleTo(ctx, ScrubRate)
	if _, err := r.Log.Scrub(throttle); err != nil {
		return fmt.Errorf("scrub log: %w", err)
	}
	damaged, reason, err := r.Snapshots.Scrub(throttle)
	if err != nil || len(damaged) == 0 {
		return err
	}
	r.metrics.damaged.Add(float64(len(damaged)))
	r.cfg.Logger.Error("snapshot damaged", "err", reason)
	return r.replaceSnapshots(damaged, reason)
}

// replaceSnapshots takes a new snapshot and sets the damaged ones aside. When the
// rest would not be enough to start from, the process ends and the next start
// replaces the replica.
func (r *Replica) replaceSnapshots(damaged []string, reason error) error {
	if err := r.raft.Snapshot().Error(); err != nil && !errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return fmt.Errorf("replace damaged snapshot: %w", err)
	}
	covered, claimed, err := r.Snapshots.Covered()
	if err != nil {
		return err
	}
	if err := disk.CheckGap(r.Log, covered, claimed); err != nil {
		r.cfg.Fatal(fmt.Errorf("%w; %w", reason, err))
		return err
	}
	return r.setSnapshotsAside(damaged, reason)
}
