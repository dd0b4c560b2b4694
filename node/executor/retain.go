package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"berth/loop"
	"berth/node/executor/live"
)

// Retain limits the directories of reported attempts, whose output can still be read.
// The oldest are removed first.
type Retain struct {
	Age   time.Duration
	Bytes int64
}

// Defaults of Retain, and the other limits.
const (
	DefaultRetainAge   = 7 * 24 * time.Hour
	DefaultRetainBytes = 16 << 30

	retainCount    = 10_000
	archivedAtOnce = 4
	retainLeast    = 10 * time.Minute // A stale view may still contain the attempt.
	retainEvery    = 10 * time.Minute
	retainAgain    = 10 * time.Second // After an error, doubled with each one.
	pruneTime      = 15 * time.Minute // For one round, if nothing answers.
)

// endedAttempt is the directory of an ended attempt.
type endedAttempt struct {
	key   live.Key
	ended time.Time
	bytes int64
}

// stretched returns limits of size that are a quarter higher, and none of age. Between the
// two, output waits to be archived.
func (r Retain) stretched() Retain { return Retain{Age: math.MaxInt64, Bytes: r.Bytes + r.Bytes/4} }

// retention removes what ended attempts left, in the limits of Config.Retain.
type retention struct {
	cfg    *Config
	opened time.Time // When this process began.
	dirs   *live.Dirs
	log    *slog.Logger
	reaped *prometheus.CounterVec
}

// run prunes the directories of ended attempts periodically until ctx ends. After an
// error it tries again soon: when the node starts, it does not know a leader yet.
func (r *retention) run(ctx context.Context) {
	for again := retainAgain; ; {
		err := r.prune(ctx)
		wait := retainEvery
		if err != nil && ctx.Err() == nil {
			r.log.Warn("ended attempts not pruned", "err", err)
			wait, again = again, min(2*again, retainEvery)
		} else {
			again = retainAgain
		}
		if !loop.Sleep(ctx, wait) {
			return
		}
	}
}

// prune removes the directories of ended attempts that exceed the retention limits, once
// their output is archived. Those that exceed the limits of size by far are removed in any
// case, but not soon after the start of the node, which may not have reached the others yet.
func (r *retention) prune(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pruneTime)
	defer cancel()
	keys, err := r.dirs.Stored()
	if err != nil {
		return err
	}
	var all []endedAttempt
	for _, k := range keys {
		info, err := r.dirs.Reported(k)
		if err == nil {
			all = append(all, endedAttempt{key: k, ended: info.ModTime(), bytes: bytesOf(r.dirs.Dir(k))})
		}
	}
	now := r.cfg.Now()
	due := surplus(all, r.cfg.Retain, retainCount, now)
	slices.Reverse(due) // The oldest first.
	overdue := make(map[live.Key]bool)
	if now.Sub(r.opened) >= retainLeast {
		for _, ended := range surplus(all, r.cfg.Retain.stretched(), retainCount+retainCount/4, now) {
			overdue[ended.key] = true
		}
	}
	var group errgroup.Group
	group.SetLimit(archivedAtOnce)
	for _, ended := range due {
		group.Go(func() error { return r.pruneOne(ctx, ended, overdue[ended.key]) })
	}
	return group.Wait()
}

// pruneOne removes the directory of an attempt, once its output is archived or if it is
// overdue.
func (r *retention) pruneOne(ctx context.Context, ended endedAttempt, overdue bool) error {
	done, failed := true, error(nil)
	if r.cfg.Archive != nil {
		done, failed = r.cfg.Archive(ctx, ended.key.Execution, ended.key.Epoch)
	}
	switch {
	case !done && (!overdue || errors.Is(ctx.Err(), context.Canceled)):
		return failed
	case !done:
		r.log.Warn("output lost: it could not be archived in time",
			"execution", ended.key.Execution, "attempt", ended.key.Epoch, "err", failed)
	}
	if err := r.dirs.Remove(ended.key); err != nil {
		return errors.Join(failed, fmt.Errorf("prune attempt: %w", err))
	}
	r.reaped.WithLabelValues("output").Inc()
	return failed
}

// surplus returns the directories that exceed the retention limits, by size and age or in
// number. The newest one comes first.
func surplus(all []endedAttempt, most Retain, count int64, now time.Time) []endedAttempt {
	all = slices.SortedFunc(slices.Values(all), func(a, b endedAttempt) int { return b.ended.Compare(a.ended) })
	var out []endedAttempt
	var kept, size int64
	for _, r := range all {
		age := now.Sub(r.ended)
		if age > retainLeast && (age > most.Age || kept >= count || size+r.bytes > most.Bytes) {
			out = append(out, r)
			continue
		}
		kept++
		size += r.bytes
	}
	return out
}

// bytesOf returns the size of the files in dir. Unreadable files count as empty:
// either they are being removed, or their removal will report the error.
func bytesOf(dir string) (size int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
		}
		return nil
	})
	return size
}
