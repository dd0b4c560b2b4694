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
)

// Limits of what is kept of reported attempts: their output, for
// whoever reads logs. The oldest goes first.
const (
	retainCount = 10_000
	retainBytes = 16 << 30
	retainAge   = 7 * 24 * time.Hour
	retainLeast = 10 * time.Minute // A view that is behind may still show the attempt.
	retainEvery = 10 * time.Minute
)

// remains is what an ended attempt left.
type remains struct {
	key   key
	ended time.Time
	bytes int64
}

// retain removes the oldest remains, again and again until ctx ends.
func (e *Executor) retain(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		if err := e.prune(); err != nil {
			e.log.Warn("prune ended attempts", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// prune removes the remains that are too many, too large or too old.
func (e *Executor) prune() error {
	keys, err := e.stored()
	if err != nil {
		return err
	}
	var all []remains
	for _, k := range keys {
		info, err := os.Stat(filepath.Join(e.dir(k), reportedFile))
		if err == nil {
			all = append(all, remains{key: k, ended: info.ModTime(), bytes: bytesOf(e.dir(k))})
		}
	}
	var errs error
	for _, r := range surplus(all, e.cfg.Now()) {
		if err := os.RemoveAll(e.dir(r.key)); err != nil {
			errs = errors.Join(errs, fmt.Errorf("prune attempt: %w", err))
			continue
		}
		_ = os.Remove(filepath.Dir(e.dir(r.key))) // Fails while it has other epochs.
		e.metrics.reaped.WithLabelValues("output").Inc()
	}
	return errs
}

// surplus returns which remains must go.
func surplus(all []remains, now time.Time) []remains {
	slices.SortFunc(all, func(a, b remains) int { return b.ended.Compare(a.ended) })
	var out []remains
	var kept, size int64
	for _, r := range all {
		age := now.Sub(r.ended)
		if age > retainLeast && (age > retainAge || kept >= retainCount || size+r.bytes > retainBytes) {
			out = append(out, r)
			continue
		}
		kept++
		size += r.bytes
	}
	return out
}

// bytesOf returns the size of the files in dir. What cannot be read counts as
// nothing: it is about to go, or its removal will say why not.
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
