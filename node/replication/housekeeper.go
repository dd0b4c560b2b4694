package replication

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/node/storage"
)

// Times of the mark and sweep of blobs.
const (
	sweepPeriod = time.Hour
	sweepMinAge = time.Hour // A younger blob may belong to a submit in progress.
)

// Housekeeper removes unused blobs from this disk and checks the others.
type Housekeeper struct {
	Read       func(ctx context.Context) (*fsm.View, error) // Has everything acknowledged before the call.
	Blobs      *storage.Blobs
	ScrubEvery time.Duration // The mean period; 0 for never.
	Logger     *slog.Logger
}

// RunSweeps removes unused blobs once a period, until ctx ends.
func (h *Housekeeper) RunSweeps(ctx context.Context) {
	for loop.Sleep(ctx, sweepPeriod) {
		h.Sweep(ctx, sweepMinAge)
	}
}

// Sweep removes from this disk the blobs older than minAge that the latest
// state does not refer to. Errors are logged, because the next sweep tries
// again.
func (h *Housekeeper) Sweep(ctx context.Context, minAge time.Duration) {
	view, err := h.Read(ctx)
	if err != nil {
		h.Logger.Warn("blobs not swept", "err", err)
		return
	}
	used := usedBlobs(view)
	removed, err := h.Blobs.Sweep(func(h compute.Hash) bool { return used[h] }, minAge)
	if err != nil {
		h.Logger.Warn("blobs not swept", "err", err)
		return
	}
	h.Logger.Debug("blobs swept", "count", removed)
}

// RunScrubs checks the blobs on this disk against their names, at the same rate
// as the replica.
func (h *Housekeeper) RunScrubs(ctx context.Context) {
	period := h.ScrubEvery
	if period <= 0 {
		return
	}
	for loop.Sleep(ctx, period-period/10+rand.N(period/5)) {
		start := time.Now() //nolint:forbidigo // A stopwatch.
		limit := rate.NewLimiter(replica.ScrubRate, storage.MaxBlob)
		_, _, err := h.Blobs.Scrub(ctx, func(bytes int) error { return limit.WaitN(ctx, min(bytes, limit.Burst())) })
		if err != nil {
			h.Logger.Error("blobs not scrubbed", "err", err)
			continue
		}
		h.Logger.Info("blobs scrubbed", "took", time.Since(start).Round(time.Millisecond))
	}
}

// usedBlobs returns the blobs of executions and of archives.
func usedBlobs(view *fsm.View) map[compute.Hash]bool {
	used := map[compute.Hash]bool{}
	for hash := range view.Bundles() {
		used[hash] = true
	}
	for a := range view.Archives() {
		used[a.Blob] = true
	}
	return used
}
