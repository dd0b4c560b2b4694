package replication

import (
	"context"
	"fmt"
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
		h.Logger.Warn("blobs not swept", "err", compute.Detailed(err))
		return
	}
	used, unread := placedBlobs(ctx, view, h.Trees)
	if len(unread) > 0 {
		h.Logger.Warn("blobs not swept: manifests not readable",
			"count", len(unread), "first", storage.Name(unread[0].Manifest), "err", unread[0].Err)
		return
	}
	if count, err := h.Objects.Live(ctx, view, used); err != nil {
		h.Logger.Warn("blobs not swept: objects not readable", "count", count, "err", err)
		return
	}
	archived := archivedBlobs(view)
	removed, err := h.Blobs.Sweep(func(h compute.Hash) bool { return used[h] || archived[h] }, minAge)
	if err != nil {
		h.Logger.Warn("blobs not swept", "err", compute.Detailed(err))
		return
	}
	h.Logger.Debug("blobs swept", "count", removed)
	maps.DeleteFunc(used, func(hash compute.Hash, _ bool) bool { return archived[hash] })
	trimmed, err := h.Repairer.Trim(ctx, maps.Keys(used), minAge)
	if err != nil {
		h.Logger.Warn("copies not trimmed", "err", compute.Detailed(err))
	}
	if trimmed > 0 {
		h.Logger.Info("copies trimmed", "count", trimmed)
	}
}

// placedBlobs returns the blobs of a state that some servers have, without those of objects,
// and the manifests that could not be read.
func placedBlobs(
	ctx context.Context, view *fsm.View, cache *trees.Cache,
) (used map[compute.Hash]bool, unread []trees.Unread) {
	used, unread = cache.Live(ctx, view.Trees())
	for hash := range view.Bundles() {
		used[hash] = true
	}
	return used, unread
}

// archivedBlobs returns the blobs of archives, which all servers have.
func archivedBlobs(view *fsm.View) map[compute.Hash]bool {
	archived := make(map[compute.Hash]bool)
	for a := range view.Archives() {
		archived[a.Blob] = true
	}
	return archived
}

// Blobs returns the blobs to which a state refers, without those of objects: code,
// files, outputs, metrics and archives. With an error it returns those that are known.
func Blobs(ctx context.Context, view *fsm.View, cache *trees.Cache) (map[compute.Hash]bool, error) {
	used, unread := placedBlobs(ctx, view, cache)
	maps.Copy(used, archivedBlobs(view))
	if len(unread) > 0 {
		return used, fmt.Errorf("read manifest %s, one of %d: %w",
			storage.Name(unread[0].Manifest), len(unread), unread[0].Err)
	}
	return used, nil
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
