package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"berth/compute"
)

// Scrub checks all blobs on this disk against their names. It fetches a damaged
// or unreadable blob again from another node, whether or not this node is an
// owner. It returns how many blobs it read and how many of them were wrong. It
// logs those that cannot be repaired. Before each read it calls throttle, whose
// error ends it.
func (b *Blobs) Scrub(ctx context.Context, throttle func(bytes int) error) (read, damaged int, err error) {
	defer func() { b.metrics.count("scrub", err) }()
	err = b.cfg.Store.each(func(hash compute.Hash, size int64) error {
		if err := throttle(int(size)); err != nil {
			return err
		}
		_, err := b.cfg.Store.Get(hash)
		if compute.CodeOf(err) == compute.CodeNotFound {
			return nil // It was removed meanwhile.
		}
		read++
		if err == nil {
			return nil
		}
		damaged++
		b.metrics.damaged.Inc()
		b.logger.Error("blob damaged", "err", err)
		if err := b.Fetch(ctx, hash); err != nil {
			b.logger.Error("damaged blob not repaired", "err", err)
		}
		return ctx.Err()
	})
	return read, damaged, err
}

// each calls fn with every blob on this disk and its size, in no order.
func (s *Store) each(fn func(hash compute.Hash, size int64) error) error {
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Removed meanwhile.
		}
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path == s.tmp() || path == s.journal.dir {
				return fs.SkipDir
			}
			return nil
		}
		hash, err := ParseName(entry.Name())
		if err != nil {
			return nil //nolint:nilerr // Not a blob.
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return fn(hash, info.Size())
	})
	if err != nil {
		return fmt.Errorf("scrub blobs: %w", err)
	}
	return nil
}
