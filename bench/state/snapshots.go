package state

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// When the node has had enough requests. Its restart applies only the entries
// after its newest snapshot. The 65,536 older entries in its log are for
// followers. Every 2 to 4 minutes a node checks for 8,192 entries after its
// snapshot, and writes the next snapshot if they are there.
const (
	tailEntries = 32_768            // After the snapshot. A smaller history uses its number of executions.
	tailLimit   = 110 * time.Second // From a snapshot's end, before the next can begin.
	writeLimit  = 10 * time.Minute  // From the beginning, with or without a snapshot.
	pollEvery   = 10 * time.Millisecond
	indexEvery  = time.Second
)

// snapshot is a snapshot that a node wrote.
type snapshot struct {
	index uint64 // Index of its last entry.
	begun time.Time
	done  time.Time // When it was first seen finished.
}

// parseSnapshot parses the name of a finished snapshot: the term and the index
// of its last entry, and its start in Unix milliseconds.
func parseSnapshot(name string) (s snapshot, ok bool) {
	var term uint64
	var begun int64
	_, err := fmt.Sscanf(name, "%d-%d-%d", &term, &s.index, &begun)
	s.begun = time.UnixMilli(begun)
	return s, err == nil && name == fmt.Sprintf("%d-%d-%d", term, s.index, begun)
}

// watch observes the snapshots of a node. It is not safe for concurrent use.
type watch struct {
	dir   string
	clock func() time.Time

	known   map[string]bool
	covered uint64     // Index of the newest snapshot.
	written []snapshot // Snapshots since the watch began.
	open    *snapshot  // Unfinished; nil for none.
}

// newWatch returns a watch on the snapshots that a node in dir writes from now
// on.
func newWatch(dir string, clock func() time.Time) (*watch, error) {
	w := &watch{dir: filepath.Join(dir, "raft", "snapshots"), clock: clock, known: make(map[string]bool)}
	err := w.poll()
	w.written = nil
	return w, err
}

// poll records changes since the last call.
func (w *watch) poll() error {
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

// until polls until a snapshot is finished and the given number of entries
// follow it, or a limit is over, or ctx ends. index returns the index of the
// newest entry.
func (w *watch) until(ctx context.Context, entries int, index func(context.Context) (uint64, error)) error {
	begun := w.clock()
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	var asked time.Time
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
		if err := w.poll(); err != nil {
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

// during reports whether a snapshot was being written at a time.
func (w *watch) during(at time.Time) bool {
	for _, s := range w.written {
		if !at.Before(s.begun) && at.Before(s.done) {
			return true
		}
	}
	return w.open != nil && !at.Before(w.open.begun)
}

// took returns the total time of the finished snapshots.
func (w *watch) took() (all time.Duration) {
	for _, s := range w.written {
		all += s.done.Sub(s.begun)
	}
	return all
}
