package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/compute"
	"berth/fault"
	"berth/loop"
	"berth/node/logs"
)

const (
	dirName      = "copies"
	completeName = "complete" // In the directory of a copy that has all there was.
	pruneEvery   = 10 * time.Minute
	pruneLeast   = 10 * time.Minute // A copy that grew since then is kept.
	pruneTime    = 15 * time.Minute // For one round, if nothing answers.
)

// Limits say how long copies are kept; the oldest are removed first.
type Limits struct {
	Age   time.Duration // Since they last grew.
	Bytes int64         // Total size of all copies.
	// Archive archives the output of an attempt of another node before its copy is
	// removed, and reports true once that may be. Copies that exceed the limits by far are
	// removed in any case. Nil removes copies that are not archived.
	Archive func(ctx context.Context, execution compute.ExecutionID, epoch uint64) (bool, error)
}

// Store keeps copies of the output of other nodes on this node's disk. Its methods are
// safe for concurrent use.
type Store struct {
	dir    string
	own    *logs.Store
	limits Limits
	now    func() time.Time
	opened time.Time

	mu sync.Mutex

	busy map[string]bool // Directories of copies that are being written.
}

// Open returns the Store of a node's data directory. Reads of copies count towards the
// limits of own, the node's own output.
func Open(dataDir string, own *logs.Store, limits Limits, now func() time.Time) *Store {
	return &Store{
		dir: filepath.Join(dataDir, dirName), own: own, limits: limits, now: now, opened: now(), busy: make(map[string]bool),
	}
}

// From returns the copies of a node's output, for package logs to read.
func (s *Store) From(node compute.NodeID) *logs.Store {
	return s.own.In(filepath.Join(s.dir, node.String()))
}

// Complete reports whether the copy of an attempt's output has all there was.
func (s *Store) Complete(node compute.NodeID, execution compute.ExecutionID, epoch uint64) bool {
	_, err := os.Stat(filepath.Join(s.attempt(node, attempt{execution, epoch}), completeName))
	return err == nil
}

// Position returns how far the copy of an attempt's output goes: a number that rises
// with it, 0 if there is none.
func (s *Store) Position(node compute.NodeID, execution compute.ExecutionID, epoch uint64) uint64 {
	p, err := have(filepath.Join(s.attempt(node, attempt{execution, epoch}), logs.SegmentName))
	if err != nil || p.chunk < 0 {
		return 0
	}
	return uint64(p.chunk+1)<<sizeBits | uint64(p.size)
}

// sizeBits is how many bits of a Position are for the size of the last chunk.
const sizeBits = 28

func (s *Store) attempt(node compute.NodeID, a attempt) string {
	return filepath.Join(s.dir, node.String(), a.execution.String(), fmt.Sprint(a.epoch))
}

// Serve takes what node pushes until it closes the stream.
func (s *Store) Serve(ctx context.Context, node compute.NodeID, stream io.ReadWriter) error {
	var buf, answer []byte
	for ctx.Err() == nil {
		var err error
		buf, err = readFrame(stream, buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive output: %w", err)
		}
		pieces, err := decodePieces(buf)
		if err != nil {
			return err
		}
		answer = append(answer[:0], make([]byte, frameHeader)...)
		for _, p := range pieces {
			at, err := s.take(node, p)
			if err != nil {
				return fmt.Errorf("copy output: %w", err)
			}
			answer = appendPosition(answer, at)
		}
		fault.Point("copies.taken")
		if err := writeFrame(stream, answer); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// take appends a piece if it continues the copy, and returns how far that goes then.
func (s *Store) take(node compute.NodeID, p piece) (position, error) {
	dir := s.attempt(node, p.of)
	if !s.begin(dir) {
		return nowhere(), compute.Errorf(compute.CodeUnavailable, "The copy is being written.")
	}
	defer s.end(dir)
	path := filepath.Join(dir, logs.SegmentName)
	at, err := have(path)
	if err != nil {
		return nowhere(), err
	}
	switch {
	case len(p.data) > 0 && p.at == at:
		err = appendTo(logs.ChunkPath(path, at.chunk), os.O_WRONLY, at.size, p.data)
	case len(p.data) > 0 && p.at.chunk > at.chunk && p.at.size == 0:
		err = startChunk(path, p)
	case p.complete && p.at == at:
		return at, complete(dir)
	case len(p.data) == 0 && at.chunk >= 0:
		return repair(path, at)
	default:
		return at, nil
	}
	if err != nil {
		return nowhere(), err
	}
	return position{p.at.chunk, p.at.size + int64(len(p.data))}, nil
}

// begin reports whether the caller may write the copy in dir.
func (s *Store) begin(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[dir] {
		return false
	}
	s.busy[dir] = true
	return true
}

func (s *Store) end(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, dir)
}

// have returns how far the copy at path goes.
func have(path string) (position, error) {
	numbers, err := logs.Chunks(path)
	if err != nil || len(numbers) == 0 {
		return nowhere(), err
	}
	last := numbers[len(numbers)-1]
	info, err := os.Stat(logs.ChunkPath(path, last))
	if err != nil {
		return nowhere(), err
	}
	return position{last, info.Size()}, nil
}

// repair cuts the copy at path off after its last whole record, and returns how far it
// goes then: this process may have ended while it wrote.
func repair(path string, at position) (whole position, err error) {
	file, err := os.OpenFile(logs.ChunkPath(path, at.chunk), os.O_RDWR, 0)
	if err != nil {
		return nowhere(), err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	whole = position{chunk: at.chunk}
	for buf := []byte(nil); ; {
		if buf, _, err = logs.ReadWhole(file, whole.size, buf[:0], pieceBytes); err != nil {
			return nowhere(), err
		}
		if len(buf) == 0 {
			break
		}
		whole.size += int64(len(buf))
	}
	return whole, file.Truncate(whole.size)
}

// startChunk writes the first piece of a chunk, and removes what the ring drops then.
func startChunk(path string, p piece) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := appendTo(logs.ChunkPath(path, p.at.chunk), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0, p.data); err != nil {
		return err
	}
	fault.Point("copies.chunk")
	numbers, err := logs.Chunks(path)
	for _, n := range numbers {
		if logs.Displaced(n, p.at.chunk) {
			err = errors.Join(err, os.Remove(logs.ChunkPath(path, n)))
		}
	}
	return err
}

// appendTo writes data at the end of a file, which is at off.
func appendTo(path string, flags int, off int64, data []byte) error {
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, off)
	return errors.Join(err, f.Close())
}

// complete marks the copy in dir as complete.
func complete(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, completeName), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // There was no output.
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Delete removes the copies of all output of an execution.
func (s *Store) Delete(execution compute.ExecutionID) error {
	if execution.IsZero() {
		return errors.New("delete copies: no execution given")
	}
	dirs, err := filepath.Glob(filepath.Join(s.dir, "*", execution.String()))
	for _, dir := range dirs {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return fmt.Errorf("delete copies: %w", err)
	}
	return nil
}

// Run removes copies beyond the limits until ctx ends.
func (s *Store) Run(ctx context.Context, report func(error)) {
	loop.Every(ctx, pruneEvery, func() {
		if err := s.Prune(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
	})
}

// kept is one copy on disk.
type kept struct {
	dir   string
	grew  time.Time
	bytes int64
}

// Prune removes copies beyond the limits. Soon after the start of the node it removes none
// that is not archived: the node may not have reached the others yet.
func (s *Store) Prune(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pruneTime)
	defer cancel()
	dirs, err := filepath.Glob(filepath.Join(s.dir, "*", "*", "*"))
	if err != nil {
		return fmt.Errorf("prune copies: %w", err)
	}
	all := make([]kept, 0, len(dirs))
	for _, dir := range dirs {
		all = append(all, measure(dir))
	}
	slices.SortFunc(all, func(a, b kept) int { return b.grew.Compare(a.grew) })
	size, now := int64(0), s.now()
	patient := now.Sub(s.opened) >= pruneEvery
	for _, k := range all {
		age := now.Sub(k.grew)
		if size += k.bytes; age <= pruneLeast || age <= s.limits.Age && size <= s.limits.Bytes {
			continue
		}
		old := age > 2*s.limits.Age && now.Sub(s.opened) > s.limits.Age/4
		far := patient && (size > s.limits.Bytes+s.limits.Bytes/4 || old)
		done, failed := s.archived(ctx, k.dir)
		if err == nil {
			err = failed
		}
		if !done && (!far || errors.Is(ctx.Err(), context.Canceled)) {
			continue
		}
		size -= k.bytes
		err = errors.Join(err, os.RemoveAll(k.dir))
		for up := filepath.Dir(k.dir); up != s.dir && os.Remove(up) == nil; up = filepath.Dir(up) {
			continue // Until one that has other copies.
		}
	}
	if err != nil {
		return fmt.Errorf("prune copies: %w", err)
	}
	return nil
}

// archived has the output whose copy is in dir archived, and reports whether the copy may
// be removed.
func (s *Store) archived(ctx context.Context, dir string) (bool, error) {
	if s.limits.Archive == nil {
		return true, nil
	}
	epoch, badEpoch := strconv.ParseUint(filepath.Base(dir), 10, 64)
	execution, badExecution := compute.ParseExecutionID(filepath.Base(filepath.Dir(dir)))
	if errors.Join(badEpoch, badExecution) != nil {
		return true, nil //nolint:nilerr // Not the directory of a copy.
	}
	return s.limits.Archive(ctx, execution, epoch)
}

// measure returns the size of the copy in dir and when it last grew. It skips files that it
// cannot read: they are being removed.
func measure(dir string) kept {
	k := kept{dir: dir}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil {
			k.bytes += info.Size()
			if info.ModTime().After(k.grew) {
				k.grew = info.ModTime()
			}
		}
	}
	return k
}
