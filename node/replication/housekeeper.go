package replication

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"berth/cluster/replica"
	"berth/compute"
	"berth/fsm"
	"berth/loop"
	"berth/node/storage"
	"berth/node/trees"
)

// Times of the mark and sweep of blobs.
const (
	sweepPeriod = time.Hour
	sweepMinAge = time.Hour // A younger blob may belong to a submit in progress.
)

// Objects knows which blobs stored objects need.
type Objects interface {
	// Live adds the blobs that the objects of a state need to live. An error means that
	// some are not known, and how many manifests could not be read.
	Live(ctx context.Context, view *fsm.View, live map[compute.Hash]bool) (unread int, err error)
}

// Housekeeper removes unused blobs from this disk and checks the others.
type Housekeeper struct {
	Read       func(ctx context.Context) (*fsm.View, error) // Has everything acknowledged before the call.
	Blobs      *storage.Blobs
	Trees      *trees.Cache
	Objects    Objects
	Repairer   *Repairer     // Fetches and trims copies on the same disk.
	ScrubEvery time.Duration // The mean period; 0 for never.
	Logger     *slog.Logger
}

// RunSweeps removes unused blobs once a period, until ctx ends.
func (h *Housekeeper) RunSweeps(ctx context.Context) {
	for loop.Sleep(ctx, sweepPeriod) {
		h.Sweep(ctx, sweepMinAge)
	}
}

// Sweep removes from this disk the blobs older than minAge that the latest state
// does not refer to, and copies of others that enough servers before this one in
// their order have. Errors are logged, because the next sweep tries again.
func (h *Housekeeper) Sweep(ctx context.Context, minAge time.Duration) {
	view, err := h.Read(ctx)
	if err != nil {
		h.Logger.Warn("blobs not swept", "err", err)
		return
	}
	used, unread := h.Trees.Live(ctx, view.Trees())
	if len(unread) > 0 {
		h.Logger.Warn("blobs not swept: manifests not readable",
			"count", len(unread), "first", storage.Name(unread[0].Manifest), "err", unread[0].Err)
		return
	}
	for hash := range view.Bundles() {
		used[hash] = true
	}
	if count, err := h.Objects.Live(ctx, view, used); err != nil {
		h.Logger.Warn("blobs not swept: objects not readable", "count", count, "err", err)
		return
	}
	archived := make(map[compute.Hash]bool) // All servers have these.
	for a := range view.Archives() {
		archived[a.Blob] = true
	}
	removed, err := h.Blobs.Sweep(func(h compute.Hash) bool { return used[h] || archived[h] }, minAge)
	if err != nil {
		h.Logger.Warn("blobs not swept", "err", err)
		return
	}
	h.Logger.Debug("blobs swept", "count", removed)
	maps.DeleteFunc(used, func(hash compute.Hash, _ bool) bool { return archived[hash] })
	trimmed, err := h.Repairer.Trim(ctx, maps.Keys(used), minAge)
	if err != nil {
		h.Logger.Warn("copies not trimmed", "err", err)
	}
	if trimmed > 0 {
		h.Logger.Info("copies trimmed", "count", trimmed)
	}
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
