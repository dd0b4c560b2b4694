package logs

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"time"

	"berth/compute"
)

const (
	partialDelay = 20 * time.Millisecond // How long the start of a line waits for its end before it is written.
	markDelay    = time.Second           // How long a count of dropped lines waits for more.
	batchBytes   = 256 << 10             // Records written by one system call.
	lineOverhead = recordHeader + 2 + 16 // What a line's record adds to its text, at most.
)

// Writer appends the output of one attempt. Each stream may have one goroutine
// that writes. A Writer never blocks on a reader. An error of Write concerns
// only the log: the caller logs it once and continues to drain the pipe.
type Writer struct {
	limits Limits

	// mu is also held during file I/O, so that records are written in the order of
	// their numbers. There is no other work to do meanwhile.
	mu sync.Mutex

	ring         ring
	seq          uint64 // The last number assigned.
	buf          []byte // Records not yet written.
	first        uint64 // The number of the first line in buf.
	last         compute.Instant
	held         [streams]heldLine
	bucket       bucket
	drop         drop
	stats        Stats
	closed       bool
	partialTimer *time.Timer
	markTimer    *time.Timer
}

// heldLine is the start of a line whose end has not been read yet.
type heldLine struct {
	text    []byte
	at      compute.Instant
	skipped bool // The start of this line was dropped, so the rest is too.
}

// add appends more of the line.
func (h *heldLine) add(at compute.Instant, p []byte) {
	if len(h.text) == 0 {
		h.at = at
	}
	h.text = append(h.text, p...)
}

// drop counts the dropped lines that the next mark will report.
type drop struct {
	active bool
	lines  int64
	bytes  int64
	cause  string
}

// Create returns a Writer of the output at path and creates its directory. It
// resumes a file that a Writer left without Close, and cuts off a torn record
// at its end. The code is conflict when the output is complete already
// (ErrEnded) or another Writer holds it.
func Create(path string, limits Limits) (*Writer, error) {
	limits, err := limits.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	w := &Writer{limits: limits}
	w.bucket = bucket{rate: limits.BytesPerSecond, tokens: limits.BytesPerSecond}
	if w.seq, err = w.ring.open(path, limits.chunkBytes()); err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	w.partialTimer = time.AfterFunc(time.Hour, w.flushPartial)
	w.partialTimer.Stop()
	w.markTimer = time.AfterFunc(time.Hour, w.flushMark)
	w.markTimer.Stop()
	return w, nil
}

// Write appends p, raw bytes as read from a pipe at the given instant. Lines
// over the rate and lines that the disk refuses are dropped, and a mark counts
// them. Lines of System are exempt from the rate.
func (w *Writer) Write(stream Stream, at compute.Instant, p []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("write log: %w", os.ErrClosed)
	}
	if stream >= streams {
		return fmt.Errorf("write log: unknown stream %d", stream)
	}
	w.last = at
	w.bucket.refill(at)
	if w.drop.active && !w.bucket.full() && stream != System {
		w.skip(stream, p)
		return nil
	}
	err := w.split(stream, at, p)
	if e := w.flush(); err == nil {
		err = e
	}
	if len(w.held[stream].text) > 0 {
		w.partialTimer.Reset(partialDelay)
	}
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	return nil
}

// Close writes the held starts of lines and the end record, and makes the
// output durable. The Writer is closed even when Close returns an error.
func (w *Writer) Close(at compute.Instant, final Final) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	w.partialTimer.Stop()
	w.markTimer.Stop()
	w.last = at
	w.bucket.tokens = w.limits.BytesPerSecond // The final lines are exempt from the rate.
	err := w.emitHeld(true)
	if w.drop.active {
		err = firstOf(err, w.mark())
	}
	err = firstOf(err, w.flush())
	w.first = w.seq + 1
	w.buf = appendEnd(w.buf, final)
	err = firstOf(err, w.flush())
	if err = firstOf(err, w.ring.close()); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

// Stats returns what w did so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// split cuts p into lines and holds the start of an unfinished one.
func (w *Writer) split(stream Stream, at compute.Instant, p []byte) (err error) {
	held := &w.held[stream]
	for len(p) > 0 {
		room := w.limits.LineBytes - len(held.text)
		i := bytes.IndexByte(p, '\n')
		switch {
		case i >= 0 && i <= room:
			err = firstOf(err, w.line(stream, at, p[:i], false))
			p = p[i+1:]
		case len(p) >= room:
			held.add(at, p[:room])
			p = p[room:]
			err = firstOf(err, w.emit(stream, max(wholeRunes(held.text), 1)))
		default:
			held.add(at, p)
			p = nil
		}
	}
	return err
}

// skip drops all of p. It only counts, so that a flood costs no more than
// reading it.
func (w *Writer) skip(stream Stream, p []byte) {
	held := &w.held[stream]
	if len(p) == 0 {
		return
	}
	feeds := int64(bytes.Count(p, []byte{'\n'}))
	lines := feeds
	if p[len(p)-1] != '\n' {
		lines++
	}
	if held.skipped {
		lines-- // The first of them was counted when it began.
	}
	w.count(lines, int64(len(held.text)+len(p))-feeds)
	held.text, held.skipped = held.text[:0], p[len(p)-1] != '\n'
}

// count counts lines that were dropped.
func (w *Writer) count(lines, bytes int64) {
	w.drop.lines += lines
	w.drop.bytes += bytes
	w.stats.DroppedLines += lines
	w.stats.DroppedBytes += bytes
}

// line appends one line, preceded by its held start, unless the line has to be
// dropped.
func (w *Writer) line(stream Stream, at compute.Instant, text []byte, partial bool) error {
	held := &w.held[stream]
	if len(held.text) > 0 {
		at, text = held.at, append(held.text, text...)
		held.text = text[:0]
	}
	admitted, err := w.admit(stream, len(text)+lineOverhead)
	if held.skipped || !admitted {
		if held.skipped {
			w.count(0, int64(len(text)))
		} else {
			w.count(1, int64(len(text)))
		}
		held.skipped = partial
		return err
	}
	return firstOf(err, w.keep(Line{At: at, Stream: stream, Text: text, Partial: partial}))
}

// keep buffers l. It flushes first when the buffer is full.
func (w *Writer) keep(l Line) error {
	var err error
	if len(w.buf)+len(l.Text)+lineOverhead > w.limits.batch() {
		err = w.flush()
	}
	w.number(l)
	return err
}

// number assigns l its number and buffers its record.
func (w *Writer) number(l Line) {
	w.seq++
	l.Seq = w.seq
	if len(w.buf) == 0 {
		w.first = l.Seq
	}
	w.buf = appendLine(w.buf, l)
}

// admit reports whether a record of n bytes is within the rate. Once the rate
// was exceeded, the log stays closed until a second's worth is free again. A
// flood then shows one mark a second instead of one between any two lines.
func (w *Writer) admit(stream Stream, n int) (bool, error) {
	if w.drop.active {
		if !w.bucket.full() && stream != System {
			return false, nil
		}
		if err := w.mark(); err != nil {
			return false, err
		}
	}
	if stream == System || w.bucket.take(int64(n)) {
		return true, nil
	}
	w.startDrop(fmt.Sprintf("more than %s/s", sizeText(w.limits.BytesPerSecond)))
	return false, nil
}

// startDrop closes the log until the next mark.
func (w *Writer) startDrop(cause string) {
	w.drop.active, w.drop.cause = true, cause
	w.bucket.tokens = 0
	w.markTimer.Reset(markDelay)
}

// mark appends the line that reports what was dropped, and opens the log again.
func (w *Writer) mark() error {
	if err := w.flush(); err != nil {
		return err
	}
	d := w.drop
	text := fmt.Sprintf("[berth: %d lines (%s) dropped here: %s]", d.lines, sizeText(d.bytes), d.cause)
	w.drop.active = false // Cleared first, so that a refused flush can close the log again.
	if d.lines > 0 || d.bytes > 0 {
		w.number(Line{At: w.last, Stream: System, Text: []byte(text)})
	}
	if err := w.flush(); err != nil {
		// flush has counted the mark as lost, but it is not a line of the output.
		w.count(-1, -int64(len(text)))
		return err
	}
	w.drop = drop{}
	return nil
}

// flush writes the buffered records. Records that the disk refuses are dropped
// and counted. Their numbers are used again, because no reader has seen them.
func (w *Writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	n, err := w.ring.write(w.buf, w.first, w.last)
	lost := w.settle(n)
	w.buf = w.buf[:0]
	if err != nil && lost {
		w.startDrop("the disk refused them")
	}
	return err
}

// settle counts the records of buf. The first n bytes, a whole number of
// records, are on disk. It reports whether any record was lost.
func (w *Writer) settle(n int) (lost bool) {
	for b := w.buf; len(b) > 0; {
		rec, size, err := parse(b)
		if err != nil {
			return lost
		}
		b = b[size:]
		if n -= size; rec.kind != kindLine {
			continue
		}
		if n >= 0 {
			w.stats.Lines++
			w.stats.Bytes += int64(len(rec.line.Text))
			continue
		}
		if !lost {
			w.seq = rec.line.Seq - 1
			lost = true
		}
		w.count(1, int64(len(rec.line.Text)))
	}
	return lost
}

// flushPartial writes the held starts of lines whose ends have not come.
func (w *Writer) flushPartial() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	// The next Write returns both errors: the disk is still full then.
	_ = w.emitHeld(false)
	_ = w.flush()
}

// flushMark reports dropped lines when nothing more was written for a while.
func (w *Writer) flushMark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.drop.active {
		return
	}
	w.last = w.last.Add(markDelay)
	w.bucket.refill(w.last)
	_ = w.mark() // The next Write returns the error.
}

// emitHeld appends the held starts of lines as partial ones. Unless all is set,
// it holds back a rune that is incomplete at the end.
func (w *Writer) emitHeld(all bool) (err error) {
	for i := range w.held {
		n := len(w.held[i].text)
		if !all {
			n = wholeRunes(w.held[i].text)
		}
		if n > 0 {
			err = firstOf(err, w.emit(Stream(i), n))
		}
	}
	return err
}

// emit appends the first n held bytes of stream as a partial line.
func (w *Writer) emit(stream Stream, n int) error {
	held := &w.held[stream]
	rest := bytes.Clone(held.text[n:]) // Nearly always empty, otherwise part of a rune.
	held.text = held.text[:n]
	err := w.line(stream, held.at, nil, true)
	held.text = append(held.text[:0], rest...)
	return err
}
