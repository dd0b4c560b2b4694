package packages

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/compute"
	"berth/node/executor/scratch"
)

const (
	suffix    = ".img" // A finished image; its name is the key.
	tmpPrefix = "tmp-" // An image that is being written.

	// usedLately is how long an image is kept after it was mounted, whatever the
	// others take: the attempt that mounted it may not have started yet.
	usedLately = 5 * time.Minute
)

// Interpreter is the interpreter for which packages are installed.
type Interpreter struct {
	Executable string
	Version    string
}

// Config has the settings of a Store.
type Config struct {
	Dir         string // Directory of the images.
	Interpreter Interpreter
	Index       Index
	SizeMiB     int64         // The largest image.
	KeepMiB     int64         // Disk space of all images together.
	Timeout     time.Duration // Limit of one installation.
	Run         Run
	Now         func() time.Time
	Logger      *slog.Logger
}

// Store keeps the images of one node.
type Store struct {
	cfg Config

	mu       sync.Mutex
	installs map[string]*install // By key.
	pinned   map[string]int      // By key: how many times it was pinned.
}

// install is an installation in progress.
type install struct {
	done    chan struct{} // Closed at its end.
	err     error
	cancel  context.CancelFunc
	waiting map[*waiter]bool // They get its lines. Without anyone it is canceled.
}

// Open returns the store in the directory and removes what a process that died left
// unfinished.
func Open(cfg Config) (*Store, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open packages: %w", err)
	}
	entries, err := os.ReadDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open packages: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), tmpPrefix) {
			if err := os.Remove(filepath.Join(cfg.Dir, entry.Name())); err != nil {
				return nil, fmt.Errorf("open packages: %w", err)
			}
		}
	}
	return &Store{cfg: cfg, installs: make(map[string]*install), pinned: make(map[string]int)}, nil
}

// Mount returns a detached mount with the packages of the request, in SiteDir. Missing
// packages are installed first, and line gets the installer's output. The error has
// CodeInvalid if the installer failed, with its own words.
func (s *Store) Mount(ctx context.Context, r Request, line func(string)) (*os.File, error) {
	key := s.key(r)
	for {
		root, err := s.open(key)
		if !errors.Is(err, fs.ErrNotExist) {
			return root, err
		}
		if err := s.await(ctx, key, r, line); err != nil {
			return nil, err
		}
	}
}

// open mounts a finished image.
func (s *Store) open(key string) (*os.File, error) {
	name := filepath.Join(s.cfg.Dir, key+suffix)
	now := s.cfg.Now()
	if err := os.Chtimes(name, now, now); err != nil {
		return nil, fmt.Errorf("mount packages: %w", err)
	}
	root, err := scratch.Mount(name, true)
	if err != nil {
		return nil, fmt.Errorf("mount packages: %w", err)
	}
	return root, nil
}

// Pin keeps what the request asks for, once it is installed, until Unpin is called as
// often: it is not removed to make space for others.
func (s *Store) Pin(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pinned[s.key(r)]++
}

// Unpin undoes Pin.
func (s *Store) Unpin(r Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.key(r)
	if s.pinned[key]--; s.pinned[key] <= 0 {
		delete(s.pinned, key)
	}
}

// isPinned reports whether an image must stay.
func (s *Store) isPinned(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pinned[strings.TrimSuffix(name, suffix)] > 0
}

// SizeMiB returns the disk space of what a request got, 0 if it is not installed.
func (s *Store) SizeMiB(r Request) int64 {
	info, err := os.Stat(filepath.Join(s.cfg.Dir, s.key(r)+suffix))
	if err != nil {
		return 0
	}
	return diskMiB(info)
}

// diskMiB returns the disk space of a sparse file, rounded up.
func diskMiB(info fs.FileInfo) int64 {
	return (info.Sys().(*syscall.Stat_t).Blocks*512 + 1<<20 - 1) >> 20
}

// await joins the installation of a key, or starts it, and returns how it ended:
// nil also for one that was canceled.
func (s *Store) await(ctx context.Context, key string, r Request, line func(string)) error {
	s.mu.Lock()
	i := s.installs[key]
	if i == nil {
		installing, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Timeout)
		i = &install{done: make(chan struct{}), cancel: cancel, waiting: make(map[*waiter]bool)}
		s.installs[key] = i
		go s.install(installing, i, key, r)
	} else {
		line("another execution installs the same packages: waiting for it")
	}
	w := &waiter{line: line}
	i.waiting[w] = true
	s.mu.Unlock()
	defer s.leave(i, w)
	select {
	case <-i.done:
		if errors.Is(i.err, context.Canceled) {
			return nil // Those who waited before had left: Mount begins again.
		}
		return i.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiter is one who waits for an installation and gets its lines.
type waiter struct {
	mu   sync.Mutex
	line func(string)
	left bool
}

// say gives a line to w, unless it has left.
func (w *waiter) say(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.left {
		w.line(text)
	}
}

// leave ends the wait for an installation: w gets no line after it has returned. The
// last one to leave cancels the installation.
func (s *Store) leave(i *install, w *waiter) {
	w.mu.Lock()
	w.left = true
	w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(i.waiting, w)
	if len(i.waiting) == 0 {
		i.cancel()
	}
}

// say gives a line of an installation to everyone who waits for it.
func (s *Store) say(i *install, text string) {
	s.mu.Lock()
	waiting := slices.Collect(maps.Keys(i.waiting))
	s.mu.Unlock()
	for _, w := range waiting {
		w.say(text)
	}
}

// install makes the image of a key.
func (s *Store) install(ctx context.Context, i *install, key string, r Request) {
	err := s.makeImage(ctx, key, r, func(text string) { s.say(i, text) })
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = compute.Errorf(compute.CodeInvalid, "the packages were not installed within %s", s.cfg.Timeout)
	}
	s.mu.Lock()
	delete(s.installs, key)
	s.mu.Unlock()
	i.err = err
	i.cancel()
	close(i.done)
	if err == nil {
		s.evict()
	}
}

// evict removes images until the rest keep to their part of the disk, the longest
// unused first, and none that is pinned. An image in use stays readable to those who mounted it.
func (s *Store) evict() {
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		s.cfg.Logger.Warn("packages not listed", "err", err)
		return
	}
	type image struct {
		name string
		mib  int64
		used time.Time
	}
	var images []image
	total := int64(0)
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || !strings.HasSuffix(entry.Name(), suffix) {
			continue
		}
		mib := diskMiB(info)
		images = append(images, image{entry.Name(), mib, info.ModTime()})
		total += mib
	}
	slices.SortFunc(images, func(a, b image) int { return a.used.Compare(b.used) })
	for _, old := range images {
		if total <= s.cfg.KeepMiB || s.cfg.Now().Sub(old.used) < usedLately {
			return
		}
		if s.isPinned(old.name) {
			continue
		}
		if err := os.Remove(filepath.Join(s.cfg.Dir, old.name)); err != nil {
			s.cfg.Logger.Warn("packages not removed", "path", old.name, "err", err)
			continue
		}
		total -= old.mib
		s.cfg.Logger.Info("unused packages removed", "path", old.name)
	}
}
