package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	slash "path" // Not path/filepath: see doc.go.
	"slices"
	"strconv"
	"strings"
	"syscall"

	"berth/compute"
)

// The output of an attempt is cut into chunks: out.seg, out.seg.1, and so on,
// each a sixteenth of the ring. The first four chunks and the last twelve are
// kept. The start and the end of the output are what people ask for, so the
// middle is dropped. A chunk is full when it holds its share of the code's bytes, or
// when framing makes it diskFactor times as large.
const (
	ringChunks   = 16
	headChunks   = 4
	diskFactor   = 4
	chunkReserve = 128 // Space in each chunk for its first record, its seal and the end.
)

// SegmentName is the file name of an attempt's output in its directory.
const SegmentName = "out.seg"

// ErrEnded is returned by Create for output that is complete.
var ErrEnded = errors.New("the output is complete")

// ring is the chunk files of one attempt. It has one writer.
type ring struct {
	path       string
	chunkBytes int64
	lock       *os.File // The first chunk, locked while the writer lives.
	file       *os.File // The last chunk.
	chunk      int      // The number of the last chunk.
	size       int64    // The bytes of its whole records.
	sealed     bool

	total int64             // The code's bytes in all chunks so far.
	text  map[int]textBytes // The code's bytes by chunk, of those that this process has written.
}

// open creates or resumes the chunks at path and returns the number of their
// last line.
func (r *ring) open(path string, chunkBytes int64) (seq uint64, err error) {
	r.path, r.chunkBytes, r.text = path, chunkBytes, make(map[int]textBytes)
	if err := os.MkdirAll(slash.Dir(path), 0o700); err != nil {
		return 0, err
	}
	if r.lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return 0, err
	}
	if err := syscall.Flock(int(r.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return 0, errors.Join(compute.Errorf(compute.CodeConflict,
			"another writer holds %s: %w", slash.Base(path), err), r.lock.Close())
	}
	if seq, err = r.resume(); err != nil {
		return 0, errors.Join(err, r.close())
	}
	return seq, nil
}

// resume finds the end of the last chunk that has a start.
func (r *ring) resume() (uint64, error) {
	numbers, err := chunksOf(r.path)
	if err != nil {
		return 0, err
	}
	for _, n := range slices.Backward(numbers) {
		seq, whole, err := r.adopt(n)
		if whole || err != nil {
			return seq, err
		}
		if n > 0 {
			if err := errors.Join(r.closeFile(), os.Remove(chunkPath(r.path, n))); err != nil {
				return 0, err
			}
		}
	}
	return 0, r.start(0, 1, 0)
}

// adopt opens chunk n and truncates it after its last whole record. It reports
// false when not even the chunk's first record is whole.
func (r *ring) adopt(n int) (seq uint64, whole bool, err error) {
	data, err := os.ReadFile(chunkPath(r.path, n))
	if err != nil {
		return 0, false, err
	}
	var size int
	for {
		rec, length, err := parse(data[size:])
		if err != nil || size == 0 && rec.kind != kindChunk {
			break
		}
		size += length
		switch rec.kind {
		case kindChunk:
			seq, r.total = rec.line.Seq-1, int64(rec.total)
		case kindLine:
			seq = rec.line.Seq
			r.count(n, textOf([]Line{rec.line}))
		case kindLines:
			seq = rec.lines[len(rec.lines)-1].Seq
			r.count(n, textOf(rec.lines))
		case kindSeal:
			r.sealed = true
		case kindEnd:
			return 0, false, compute.Errorf(compute.CodeConflict, "%w", ErrEnded)
		}
	}
	if size == 0 {
		return 0, false, nil
	}
	if r.file, err = os.OpenFile(chunkPath(r.path, n), os.O_RDWR, 0); err != nil {
		return 0, false, err
	}
	r.chunk, r.size = n, int64(size)
	return seq, true, r.file.Truncate(r.size)
}

// start makes chunk n the last one and removes the one that it displaces.
func (r *ring) start(n int, first uint64, at compute.Instant) error {
	flags := os.O_RDWR | os.O_CREATE | os.O_TRUNC
	file, err := os.OpenFile(chunkPath(r.path, n), flags, 0o600)
	if err != nil {
		return err
	}
	head := appendChunk(nil, first, at, r.total)
	if _, err := file.WriteAt(head, 0); err != nil {
		err = errors.Join(err, file.Close())
		if n > 0 {
			err = errors.Join(err, os.Remove(chunkPath(r.path, n)))
		}
		return err
	}
	err = r.closeFile()
	r.file, r.chunk, r.size, r.sealed = file, n, int64(len(head)), false
	if old := n - (ringChunks - headChunks); old >= headChunks {
		err = errors.Join(err, os.Remove(chunkPath(r.path, old)))
	}
	return err
}

// count adds text to chunk n.
func (r *ring) count(n int, text textBytes) {
	sum := r.text[n]
	for i := range text {
		sum[i] += text[i]
	}
	r.text[n] = sum
	r.total += text.sum()
}

// keptOf returns how many of the code's bytes of a stream are behind the gap.
func (r *ring) keptOf(stream Stream) (n int64) {
	for chunk, text := range r.text {
		if chunk > r.chunk-(ringChunks-headChunks) {
			n += text[stream]
		}
	}
	return n
}

// droppedOf returns how many of the code's bytes of a stream are in the gap.
func (r *ring) droppedOf(stream Stream) (n int64) {
	for chunk, text := range r.text {
		if chunk >= headChunks && chunk <= r.chunk-(ringChunks-headChunks) {
			n += text[stream]
		}
	}
	return n
}

// write appends b, whole records with text. The first line in b has the number
// first. It returns how many bytes of whole records are in the file: all of b unless
// it returns an error.
func (r *ring) write(b []byte, first uint64, at compute.Instant, text textBytes) (int, error) {
	if r.sealed || r.text[r.chunk].sum()+text.sum() > r.chunkBytes ||
		r.size+int64(len(b))+sealBytes > diskFactor*r.chunkBytes {
		if err := r.roll(first, at); err != nil {
			return 0, err
		}
	}
	n, err := r.file.WriteAt(b, r.size)
	if err != nil {
		n = r.taken(b)
	}
	r.size += int64(n)
	if n == len(b) {
		r.count(r.chunk, text)
	}
	return n, err
}

// taken returns how many bytes of whole records of b are in the file after a
// failed write. WriteAt does not report what the disk took before it was full,
// and readers may have seen it.
func (r *ring) taken(b []byte) int {
	there := make([]byte, len(b))
	n, _ := r.file.ReadAt(there, r.size) // Bytes that cannot be read were not taken.
	same := 0
	for same < n && there[same] == b[same] {
		same++
	}
	return wholeRecords(b[:same])
}

// sealBytes is the size of a seal's record.
const sealBytes = recordHeader + 1 + binary.MaxVarintLen64

// roll seals the last chunk and starts the next.
func (r *ring) roll(first uint64, at compute.Instant) error {
	if !r.sealed {
		seal := appendSeal(nil, r.total)
		if _, err := r.file.WriteAt(seal, r.size); err != nil {
			return err
		}
		r.size += int64(len(seal))
		r.sealed = true
	}
	return r.start(r.chunk+1, first, at)
}

// close makes all chunks durable and releases the files.
func (r *ring) close() error {
	err := r.sync()
	if r.file != nil {
		err = errors.Join(err, r.closeFile())
	}
	return errors.Join(err, r.unlock())
}

// unlock lets another writer go on. It does not leave the unlocking to the close: a child
// that this process is just forking holds the file, and with it the lock, until it executes.
func (r *ring) unlock() error {
	return errors.Join(syscall.Flock(int(r.lock.Fd()), syscall.LOCK_UN), r.lock.Close())
}

// sync fsyncs every chunk. It syncs the directory too, because a reader finds
// the chunks by its entries.
func (r *ring) sync() error {
	numbers, err := chunksOf(r.path)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		err = errors.Join(err, syncFile(chunkPath(r.path, n)))
	}
	return errors.Join(err, syncFile(slash.Dir(r.path)))
}

// closeFile closes the last chunk, if one is open.
func (r *ring) closeFile() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// syncFile makes the file or directory at path durable.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// chunkPath returns the path of chunk n of the output at path.
func chunkPath(path string, n int) string {
	if n == 0 {
		return path
	}
	return path + "." + strconv.Itoa(n)
}

// chunksOf returns the numbers of the chunks at path, in order.
func chunksOf(path string) ([]int, error) {
	entries, err := os.ReadDir(slash.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("list log chunks: %w", err)
	}
	var numbers []int
	base := slash.Base(path)
	for _, entry := range entries {
		rest, ok := strings.CutPrefix(entry.Name(), base)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(rest, "."))
		if rest != "" && (err != nil || chunkPath(path, n) != path+rest) {
			continue
		}
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers, nil
}

// wholeRecords returns how many bytes of b are whole records.
func wholeRecords(b []byte) (n int) {
	for {
		_, size, err := parse(b[n:])
		if err != nil {
			return n
		}
		n += size
	}
}
