package series

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"berth/compute"
)

// MaxPoints is how many points a file holds.
const MaxPoints = 3600

const (
	fileName    = "metrics"
	fileVersion = 1
	headerBytes = 8 // The version, and for how many seconds each point stands.
)

// Store reads and writes the series of the attempts on one node. Its methods are safe
// for concurrent use, except that one goroutine at a time writes an attempt.
type Store struct{ dir string }

// Open returns the Store of a node's data directory.
func Open(dataDir string) *Store { return &Store{dir: filepath.Join(dataDir, "attempts")} }

func (s *Store) path(execution compute.ExecutionID, epoch uint64) string {
	return filepath.Join(s.dir, execution.String(), fmt.Sprint(epoch), fileName)
}

// Read returns the points of an attempt with from < At <= to, oldest first: none of an
// attempt that has no series.
func (s *Store) Read(execution compute.ExecutionID, epoch uint64, from, to compute.Instant) ([]Point, error) {
	_, points, err := read(s.path(execution, epoch))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return between(points, from, to), nil
}

// Delete removes the series of an execution from this node.
func (s *Store) Delete(execution compute.ExecutionID) error {
	if execution.IsZero() {
		return fmt.Errorf("delete metrics: no execution given")
	}
	files, err := filepath.Glob(filepath.Join(s.dir, execution.String(), "*", fileName))
	for _, f := range files {
		if e := os.Remove(f); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		_ = os.Remove(filepath.Dir(f))               // Fails while the directory has other files.
		_ = os.Remove(filepath.Dir(filepath.Dir(f))) // As above.
	}
	return err
}

// read returns the content of a file. It ignores bytes after the last whole point: the
// machine stopped while they were written.
func read(path string) (seconds int, points []Point, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 1, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	if len(b) < headerBytes || binary.LittleEndian.Uint32(b) != fileVersion {
		return 1, nil, nil // Torn, or of another version.
	}
	seconds = int(binary.LittleEndian.Uint32(b[4:]))
	for b = b[headerBytes:]; len(b) >= pointBytes; b = b[pointBytes:] {
		points = append(points, decodePoint(b))
	}
	return max(seconds, 1), points, nil
}

// writer appends points to one attempt's file.
type writer struct {
	path    string
	seconds int // For which a point stands.
	points  int // In the file.
	next    mean
}

// newWriter continues the file at path.
func newWriter(path string) (*writer, error) {
	seconds, points, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	w := &writer{path: path, seconds: seconds, points: len(points)}
	if info, err := os.Stat(path); err == nil && info.Size() != int64(headerBytes+len(points)*pointBytes) {
		return w, w.rewrite(points) // Without its torn end.
	}
	return w, nil
}

// add takes the measurements of one second.
func (w *writer) add(p Point) error {
	if w.next.add(p); w.next.n < w.seconds {
		return nil
	}
	return w.append(w.next.take())
}

// append writes a point.
func (w *writer) append(p Point) (err error) {
	if w.points >= MaxPoints {
		if err := w.halve(); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var b []byte
	if end, err := f.Seek(0, io.SeekEnd); err == nil && end == 0 {
		b = header(w.seconds)
	}
	if _, err := f.Write(appendPoint(b, p)); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	w.points++
	return nil
}

// header returns the start of a file.
func header(seconds int) []byte {
	b := binary.LittleEndian.AppendUint32(nil, fileVersion)
	return binary.LittleEndian.AppendUint32(b, uint32(seconds))
}

// halve makes one point of each pair.
func (w *writer) halve() error {
	_, points, err := read(w.path)
	if err != nil {
		return fmt.Errorf("thin metrics: %w", err)
	}
	var half []Point
	var m mean
	for i, p := range points {
		if m.add(p); i%2 == 1 || i == len(points)-1 {
			half = append(half, m.take())
		}
	}
	w.seconds *= 2
	return w.rewrite(half)
}

// rewrite replaces the file.
func (w *writer) rewrite(points []Point) error {
	b := header(w.seconds)
	for _, p := range points {
		b = appendPoint(b, p)
	}
	temporary := w.path + ".new"
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	if err := os.Rename(temporary, w.path); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	w.points = len(points)
	return nil
}

// end writes the points that add has not written yet.
func (w *writer) end() error {
	if w.next.n == 0 {
		return nil
	}
	return w.append(w.next.take())
}
