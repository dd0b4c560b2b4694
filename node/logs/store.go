package logs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	slash "path" // Not path/filepath: see doc.go.
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/compute"
	"berth/loop"
)

// Followers poll for new output: one that is notified of writes rarely, only to see that
// there will be no more. One poll costs a read that returns nothing.
const (
	pollInterval = 25 * time.Millisecond
	rareInterval = 250 * time.Millisecond
)

// Notifier notifies followers of writes, as package notify does.
type Notifier interface {
	// Watch returns a channel that receives once files in dir were written since
	// the last time, and a function that ends that. dir must exist.
	Watch(dir string) (written <-chan struct{}, stop func(), err error)
}

// Store reads the output that is on this node's disk. Its methods are safe for
// concurrent use.
type Store struct {
	dir      string
	notifier Notifier
	tails    *loop.FairLimiter[compute.ExecutionID]
	memory   *memory
}

// tailsAtOnce bounds the memory and the reads of disks for tails: each holds up to
// six times its limit, and reads the whole output.
const tailsAtOnce = 4

// Open returns the Store of a node's data directory. Without a notifier its
// followers poll.
func Open(dataDir string, n Notifier) *Store {
	return &Store{
		dir: in(dataDir), notifier: n, tails: loop.NewFairLimiter[compute.ExecutionID](tailsAtOnce),
		memory: newMemory(),
	}
}

// In returns a Store of the output in another directory, such as copies of another
// node's. They share the limits of s. Its followers poll.
func (s *Store) In(dir string) *Store { return &Store{dir: dir, tails: s.tails, memory: s.memory} }

// Dir returns the directory of all output of a node, by execution and attempt.
func Dir(dataDir string) string { return in(dataDir) }

// in returns the directory of all output.
func in(dataDir string) string { return slash.Join(dataDir, "attempts") }

// Path returns where an attempt's Writer writes, for Create.
func Path(dataDir string, execution compute.ExecutionID, epoch uint64) string {
	return (&Store{dir: in(dataDir)}).path(execution, epoch)
}

func (s *Store) path(execution compute.ExecutionID, epoch uint64) string {
	return slash.Join(s.dir, execution.String(), strconv.FormatUint(epoch, 10), SegmentName)
}

// follow passes on the lines of an attempt behind number after, until the
// end of the output or until ended reports that no more can come. Without an
// end record it returns nil. Lines carry the attempt's own numbers and are valid during
// the call that gets them.
func (s *Store) follow(ctx context.Context, a attempt, after uint64, h hooks) (final *Final, err error) {
	r := newReader(s.path(a.execution, a.epoch), after)
	r.memory = s.memory
	defer func() { err = errors.Join(err, r.close()) }()
	w := newWait(s.notifier, slash.Dir(s.path(a.execution, a.epoch)))
	defer w.stop()
	for {
		ended := h.ended() // Before the read, so that output written until then is seen.
		n, final, err := s.deliver(r, h.lines)
		if err != nil {
			return nil, err
		}
		if final != nil || ended && n == 0 {
			return final, nil
		}
		if n > 0 {
			continue
		}
		if err := h.idle(); err != nil {
			return nil, err
		}
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// deliver calls fn with the next batch of lines, unless there is none, and returns how
// many they are.
func (s *Store) deliver(r *reader, fn func([]Line) error) (n int, final *Final, err error) {
	b := &batch{most: smallBatch()}
	if s.memory.takeLarge() {
		defer s.memory.giveLarge()
		b = s.memory.takeBatch()
		defer s.memory.giveBatch(b)
	}
	final, err = r.next(b)
	if err != nil || len(b.lines) == 0 {
		return 0, final, err
	}
	return len(b.lines), final, fn(b.lines)
}

// wait is how one follower waits for more.
type wait struct {
	notifier Notifier // Nil for none, and once dir is watched.
	dir      string
	written  <-chan struct{}
	unwatch  func()
	ticker   *time.Ticker
}

func newWait(n Notifier, dir string) *wait {
	return &wait{notifier: n, dir: dir, unwatch: func() {}, ticker: time.NewTicker(pollInterval)}
}

func (w *wait) stop() {
	w.unwatch()
	w.ticker.Stop()
}

// wait returns when there may be more output, or when ctx ends.
func (w *wait) wait(ctx context.Context) error {
	if w.notifier != nil {
		// Until the attempt has a directory, and on a machine that grants no watch, the
		// follower polls.
		if written, unwatch, err := w.notifier.Watch(w.dir); err == nil {
			w.notifier, w.written, w.unwatch = nil, written, unwatch
			w.ticker.Reset(rareInterval)
			return ctx.Err() // The caller reads once more: a write before the watch is not reported.
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.written:
	case <-w.ticker.C:
	}
	return nil
}

// attempt names the output that is read.
type attempt struct {
	execution compute.ExecutionID
	epoch     uint64
}

// hooks are the callbacks of follow.
type hooks struct {
	ended func() bool        // Reports whether no writer of the attempt lives.
	lines func([]Line) error // Receives new lines; an error ends follow.
	idle  func() error       // Called when there is nothing new.
}

// Delete removes the output of an execution from this node. Followers that are
// reading it may still reach its end.
func (s *Store) Delete(execution compute.ExecutionID) error {
	if execution.IsZero() {
		return fmt.Errorf("delete log: no execution given")
	}
	chunks, err := s.chunks(execution)
	if err != nil {
		return fmt.Errorf("delete log: %w", err)
	}
	for _, chunk := range chunks {
		if e := os.Remove(chunk); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		_ = os.Remove(slash.Dir(chunk)) // Fails while the directory has other files.
	}
	_ = os.Remove(slash.Join(s.dir, execution.String())) // As above.
	if err != nil {
		return fmt.Errorf("delete log: %w", err)
	}
	return nil
}

// chunks returns the files of all output of an execution on this disk.
func (s *Store) chunks(execution compute.ExecutionID) ([]string, error) {
	dir := slash.Join(s.dir, execution.String())
	epochs, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list output: %w", err)
	}
	var chunks []string
	for _, epoch := range epochs {
		files, err := os.ReadDir(slash.Join(dir, epoch.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list output: %w", err)
		}
		for _, file := range files {
			if strings.HasPrefix(file.Name(), SegmentName) {
				chunks = append(chunks, slash.Join(dir, epoch.Name(), file.Name()))
			}
		}
	}
	return chunks, nil
}

// Epochs returns the attempts of an execution that are on this node, in order.
func (s *Store) Epochs(execution compute.ExecutionID) []uint64 {
	entries, err := os.ReadDir(slash.Join(s.dir, execution.String()))
	if err != nil {
		return nil
	}
	var epochs []uint64
	for _, entry := range entries {
		if epoch, err := strconv.ParseUint(entry.Name(), 10, 64); err == nil {
			epochs = append(epochs, epoch)
		}
	}
	slices.Sort(epochs)
	return epochs
}
