package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// When a node has been asked for enough. Its restart applies the entries behind
// its newest snapshot, and no others: the 65,536 that its log keeps beside are
// for followers, and the snapshot covers them. Every 2 to 4 minutes a node
// looks whether 8,192 entries lie behind its snapshot, and writes the next if
// so.
const (
	tailEntries = 32_768            // Behind the snapshot. Of a smaller history, as many as it has executions.
	tailLimit   = 110 * time.Second // From a snapshot's end, before the next can begin.
	writeLimit  = 10 * time.Minute  // From the beginning, with a snapshot or without.
	lookEvery   = 10 * time.Millisecond
	indexEvery  = time.Second
)

// snapshot is one that a node wrote.
type snapshot struct {
	index uint64 // Of the last entry in it.
	begun time.Time
	done  time.Time // When it was seen to be finished.
}

// parseSnapshot reads the name of a finished snapshot: the term and the index
// of its last entry, and when it was begun, in milliseconds.
func parseSnapshot(name string) (s snapshot, ok bool) {
	var term uint64
	var begun int64
	_, err := fmt.Sscanf(name, "%d-%d-%d", &term, &s.index, &begun)
	s.begun = time.UnixMilli(begun)
	return s, err == nil && name == fmt.Sprintf("%d-%d-%d", term, s.index, begun)
}

// watch sees the snapshots of a node come. One goroutine uses it.
type watch struct {
	dir   string
	clock func() time.Time

	known   map[string]bool
	covered uint64     // What the newest of all covers.
	written []snapshot // Those that came since.
	open    *snapshot  // Not finished; nil for none.
}

// newWatch returns a watch on the snapshots that a node in dir writes from now.
func newWatch(dir string, clock func() time.Time) (*watch, error) {
	w := &watch{dir: filepath.Join(dir, "raft", "snapshots"), clock: clock, known: make(map[string]bool)}
	err := w.look()
	w.written = nil
	return w, err
}

// look notes what has come since the last look.
func (w *watch) look() error {
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		return err
	}
	now := w.clock()
	w.open = nil
	for _, entry := range entries {
		name, unfinished := strings.CutSuffix(entry.Name(), ".tmp")
		s, ok := parseSnapshot(name)
		switch {
		case !ok || w.known[name]:
		case unfinished:
			w.open = &s
		default:
			s.done = now
			w.known[name], w.covered = true, max(w.covered, s.index)
			w.written = append(w.written, s)
		}
	}
	return nil
}

// until looks until a snapshot has come and so many entries lie behind it, or
// a limit is over, or ctx ends. Index returns that of the newest entry.
func (w *watch) until(ctx context.Context, entries int, index func(context.Context) (uint64, error)) error {
	begun := w.clock()
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	var asked time.Time
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		if err := w.look(); err != nil {
			return err
		}
		now := w.clock()
		if now.Sub(begun) >= writeLimit {
			return nil
		}
		if len(w.written) == 0 || w.open != nil {
			continue
		}
		if now.Sub(w.written[len(w.written)-1].done) >= tailLimit {
			return nil
		}
		if now.Sub(asked) < indexEvery {
			continue
		}
		asked = now
		at, err := index(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if at >= w.covered+uint64(entries) { //nolint:gosec // It is positive.
			return nil
		}
	}
}

// during reports whether a snapshot was written at a time.
func (w *watch) during(at time.Time) bool {
	for _, s := range w.written {
		if !at.Before(s.begun) && at.Before(s.done) {
			return true
		}
	}
	return w.open != nil && !at.Before(w.open.begun)
}

// took returns how long the finished snapshots took together.
func (w *watch) took() (all time.Duration) {
	for _, s := range w.written {
		all += s.done.Sub(s.begun)
	}
	return all
}
