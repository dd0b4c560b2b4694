package logs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
)

// batchLimit bounds one batch of lines.
type batchLimit struct{ lines, bytes int }

// The batches of followers. See largeBatches.
func largeBatch() batchLimit { return batchLimit{maxBatchLines, batchText} }

func smallBatch() batchLimit { return batchLimit{32, 2 << 10} }

const (
	maxBatchLines = 1024
	batchText     = 32 << 10
	readBytes     = 40 << 10 // One read, of a record with maxRecordText at least. It grows for a longer one.
)

// reader reads the output of one attempt from this node's disk, during or after
// its writing. It is not safe for concurrent use.
type reader struct {
	path  string
	after uint64 // The last number returned.

	file    *os.File // The chunk that is read; nil before the first.
	chunk   int
	off     int64
	suspect int64  // Offset at which a bad record was seen; -1 for none.
	total   uint64 // The code's bytes up to the last seal; 0 if unknown.

	memory *memory // Nil without one that is shared.
}

// newReader returns a reader of the lines behind number after.
func newReader(path string, after uint64) *reader {
	return &reader{path: path, after: after, suspect: -1}
}

// close releases the file.
func (r *reader) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// next adds to b, which is empty, the lines that are available, until it is full. It
// returns the end once everything before it was added. It does neither when nothing is new.
func (r *reader) next(b *batch) (*Final, error) {
	buf := r.memory.takeBuffer()
	defer r.memory.giveBuffer(buf) // Hundreds of readers may wait for their clients or for more.
	for !b.full() {
		if r.file == nil {
			if found, err := r.seek(); !found || err != nil {
				return nil, err
			}
		}
		final, more, err := r.read(buf, b)
		if final != nil || err != nil || !more {
			return final, err
		}
	}
	return nil, nil
}

// read adds to b the records at the reader's position. It reports whether there
// may be more without waiting.
func (r *reader) read(buf *readBuffer, b *batch) (final *Final, more bool, err error) {
	n, err := r.file.ReadAt(buf.data, r.off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, fmt.Errorf("read log: %w", err)
	}
	for data := buf.data[:n]; !b.full(); {
		rec, size, err := parseInto(data, buf.lines)
		if cap(rec.lines) > cap(buf.lines) {
			buf.lines = rec.lines
		}
		switch {
		case errors.Is(err, errTorn) && n == len(buf.data) && len(data) < n:
			return nil, true, nil // The next read starts with this record.
		case errors.Is(err, errTorn) && n == len(buf.data):
			buf.data = make([]byte, recordSize(data))
			return nil, true, nil
		case errors.Is(err, errTorn) && len(data) == 0:
			return nil, false, nil
		case err != nil:
			more, err = r.skipDamage()
			return nil, more, err
		case rec.kind == kindSeal:
			r.total = rec.total
			more, err = r.nextChunk()
			return nil, more, err
		case rec.kind == kindEnd:
			return &rec.final, false, nil
		}
		if !r.take(b, rec) {
			break // The next batch starts with or within this record.
		}
		data = data[size:]
		r.off += int64(size)
	}
	return nil, true, nil
}

// take adds the line of rec to b, unless it was returned before. A line of
// System replaces the numbers that are missing in front of a chunk. It reports false when
// the batch is full before the end of rec.
func (r *reader) take(b *batch, rec record) (whole bool) {
	switch {
	case rec.kind == kindChunk && rec.line.Seq > r.after+1:
		missing := rec.line.Seq - 1 - r.after
		r.after = rec.line.Seq - 1
		size := ""
		if r.total > 0 && rec.total > r.total {
			size = " (" + sizeText(int64(rec.total-r.total)) + ")"
		}
		text := fmt.Sprintf("[berth: %d lines%s dropped here: more output than is kept]", missing, size)
		b.add(Line{Seq: r.after, At: rec.line.At, Stream: System, Text: []byte(text)})
	case rec.kind == kindLine && rec.line.Seq > r.after:
		r.after = rec.line.Seq
		b.add(rec.line)
	case rec.kind == kindLines:
		if !b.fits(rec.lines) {
			b.ended = true
			return false // Else the next batch would decode it again.
		}
		for _, l := range rec.lines {
			if l.Seq <= r.after {
				continue
			}
			if b.full() {
				return false
			}
			r.after = l.Seq
			b.add(l)
		}
	}
	return true
}

// skipDamage goes on with the next chunk when the rest of this one cannot be
// read. Without a later chunk, the writer may still be in the middle of the
// record.
func (r *reader) skipDamage() (more bool, err error) {
	later, err := r.later()
	if err != nil || later < 0 {
		return false, err
	}
	if r.suspect != r.off {
		r.suspect = r.off // A later chunk exists, so this one is complete:
		return true, nil  // read the record once more.
	}
	return r.nextChunk()
}

// nextChunk opens the chunk behind this one, if it exists already.
func (r *reader) nextChunk() (found bool, err error) {
	later, err := r.later()
	if err != nil || later < 0 {
		return false, err
	}
	return r.open(later)
}

// later returns the number of the first chunk behind this one, or -1.
func (r *reader) later() (int, error) {
	numbers, err := chunksOf(r.path)
	if err != nil {
		return -1, err
	}
	i, found := slices.BinarySearch(numbers, r.chunk+1)
	if !found && i == len(numbers) {
		return -1, nil
	}
	return numbers[i], nil
}

// seek opens the chunk that holds the line behind r.after.
func (r *reader) seek() (found bool, err error) {
	numbers, err := chunksOf(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, n := range slices.Backward(numbers) {
		found, err := r.open(n)
		if err != nil {
			return false, err
		}
		if found && (r.startsBy(r.after+1) || n == numbers[0]) {
			return true, nil
		}
	}
	return false, nil
}

// startsBy reports whether the chunk's first line has the number seq or less.
func (r *reader) startsBy(seq uint64) bool {
	head := make([]byte, chunkReserve)
	n, _ := r.file.ReadAt(head, 0) // A short read fails the parse.
	rec, _, err := parse(head[:n])
	return err == nil && rec.kind == kindChunk && rec.line.Seq <= seq
}

// open moves to the start of chunk n. It reports false when the ring has
// dropped the chunk meanwhile.
func (r *reader) open(n int) (bool, error) {
	file, err := os.Open(chunkPath(r.path, n))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open log: %w", err)
	}
	err = r.close()
	r.file, r.chunk, r.off, r.suspect = file, n, 0, -1
	return true, err
}

// batch collects lines and copies their texts in few allocations.
type batch struct {
	lines []Line
	texts []byte
	bytes int
	most  batchLimit
	ended bool // No more is added.
}

func (b *batch) full() bool {
	return b.ended || len(b.lines) >= b.most.lines || b.bytes >= b.most.bytes
}

// reset empties the batch.
func (b *batch) reset() { b.lines, b.texts, b.bytes, b.ended = b.lines[:0], b.texts[:0], 0, false }

// fits reports whether b takes all of lines. One that is empty takes what it can.
func (b *batch) fits(lines []Line) bool {
	size := b.bytes
	for _, l := range lines {
		size += len(l.Text)
	}
	return len(b.lines) == 0 || len(b.lines)+len(lines) <= b.most.lines && size <= b.most.bytes
}

func (b *batch) add(l Line) {
	start := len(b.texts)
	b.texts = append(b.texts, l.Text...)
	l.Text = b.texts[start:len(b.texts):len(b.texts)]
	b.lines = append(b.lines, l)
	b.bytes += len(l.Text)
}

// delivery hands lines on in batches.
type delivery struct {
	batch *batch
	after *uint64 // The last number that fn got.
	last  uint64  // The last number in the batch.
	fn    func([]Line) error
}

// add adds the lines of rec that are behind those before.
func (d *delivery) add(rec record) error {
	for _, l := range rec.all() {
		if l.Seq <= d.last {
			continue
		}
		if d.batch.full() {
			if err := d.flush(); err != nil {
				return err
			}
		}
		d.last = l.Seq
		d.batch.add(l)
	}
	return nil
}

// flush calls fn with the batch.
func (d *delivery) flush() error {
	if len(d.batch.lines) == 0 {
		return nil
	}
	if err := d.fn(d.batch.lines); err != nil {
		return stoppedError{err}
	}
	*d.after = d.last
	d.batch.reset()
	return nil
}
