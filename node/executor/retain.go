package executor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"berth/loop"
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

	retainCount = 10_000
	retainLeast = 10 * time.Minute // A stale view may still contain the attempt.
	retainEvery = 10 * time.Minute
)

// endedAttempt is the directory of an ended attempt.
type endedAttempt struct {
	key   key
	ended time.Time
	bytes int64
}

// retain prunes the directories of ended attempts periodically until ctx ends.
func (e *Executor) retain(ctx context.Context) {
	loop.Every(ctx, retainEvery, func() {
		if err := e.prune(); err != nil {
			e.log.Warn("ended attempts not pruned", "err", err)
		}
	})
}

// prune removes the directories that exceed the retention limits.
func (e *Executor) prune() error {
	keys, err := e.stored()
	if err != nil {
		return err
	}
	var all []endedAttempt
	for _, k := range keys {
		info, err := os.Stat(filepath.Join(e.dir(k), reportedFile))
		if err == nil {
			all = append(all, endedAttempt{key: k, ended: info.ModTime(), bytes: bytesOf(e.dir(k))})
		}
	}
	var errs error
	for _, r := range surplus(all, e.cfg.Retain, e.cfg.Now()) {
		if err := os.RemoveAll(e.dir(r.key)); err != nil {
			errs = errors.Join(errs, fmt.Errorf("prune attempt: %w", err))
			continue
		}
		_ = os.Remove(filepath.Dir(e.dir(r.key))) // Fails while it has other epochs.
		e.metrics.reaped.WithLabelValues("output").Inc()
	}
	return errs
}

// surplus returns the directories that exceed the retention limits.
func surplus(all []endedAttempt, most Retain, now time.Time) []endedAttempt {
	slices.SortFunc(all, func(a, b endedAttempt) int { return b.ended.Compare(a.ended) })
	var out []endedAttempt
	var kept, size int64
	for _, r := range all {
		age := now.Sub(r.ended)
		if age > retainLeast && (age > most.Age || kept >= retainCount || size+r.bytes > most.Bytes) {
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
