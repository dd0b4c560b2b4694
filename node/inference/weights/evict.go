package weights

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"berth/compute"
)

// parts are the files that an abandoned download has left.
type parts struct {
	dir   string
	bytes int64
}

// unfinished returns the parts of downloads that are not under way, and the bytes that
// downloads to other directories than keep will need.
func (s *Store) unfinished(keep string) (left []parts, underWay int64) {
	entries, _ := os.ReadDir(s.cfg.Dir) // As for list.
	s.mu.Lock()
	defer s.mu.Unlock()
	for dir, f := range s.fetching {
		if dir != keep {
			underWay += f.bytes
		}
	}
	for _, e := range entries {
		p := parts{dir: filepath.Join(s.cfg.Dir, e.Name())}
		if p.dir == keep || s.fetching[p.dir] != nil || s.complete(p.dir) {
			continue
		}
		_ = filepath.WalkDir(p.dir, func(_ string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				if info, err := d.Info(); err == nil {
					p.bytes += info.Size()
				}
			}
			return nil // An unreadable file is being removed, or its removal returns why.
		})
		left = append(left, p)
	}
	return left, underWay
}

// discard removes parts of a model, unless a download of it has begun meanwhile.
func (s *Store) discard(dir string) error {
	gone := dir + ".gone" // A download of the model makes its directory again.
	if err := os.RemoveAll(gone); err != nil {
		return err
	}
	s.mu.Lock()
	var err error
	if s.fetching[dir] == nil {
		err = os.Rename(dir, gone)
	}
	s.mu.Unlock()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(gone)
}

// evict removes the parts of abandoned downloads, and then the longest unused models, until
// so many bytes more fit. One call at a time does so: others would choose the same models.
func (s *Store) evict(more int64, keep string) error {
	s.evicting.Lock()
	defer s.evicting.Unlock()
	list := s.list()
	left, underWay := s.unfinished(keep)
	limit := s.cfg.KeepMiB << 20
	total := more + underWay
	for _, c := range list {
		total += c.bytes()
	}
	for _, p := range left {
		total += p.bytes
	}
	for _, p := range left {
		if total <= limit {
			return nil
		}
		if err := s.discard(p.dir); err != nil {
			return fmt.Errorf("evict parts of a model: %w", err)
		}
		total -= p.bytes
	}
	for _, c := range list {
		if total <= limit {
			return nil
		}
		if c.dir == keep {
			continue
		}
		free, err := s.giveUp(&c)
		if err != nil {
			return fmt.Errorf("evict model: %w", err)
		}
		if !free {
			continue
		}
		if err := os.RemoveAll(c.dir); err != nil {
			return fmt.Errorf("evict model: %w", err)
		}
		s.cfg.Logger.Info("model evicted", "model", c.Name)
		total -= c.bytes()
	}
	if total > limit {
		return compute.Errorf(compute.CodeUnavailable, "the cache of models is full of models in use")
	}
	return nil
}

// giveUp removes the manifest of a model that nothing uses, and reports whether it is one. A
// start that has chosen the model before is seen to use it; a later one finds it incomplete.
func (s *Store) giveUp(c *cachedModel) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.cfg.InUse(), func(u Use) bool { return u.protects(c) }) {
		return false, nil
	}
	err := os.Remove(filepath.Join(c.dir, manifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // Someone removed it by hand.
	}
	return err == nil, err
}
