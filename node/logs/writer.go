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
	partialDelay = 20 * time.Millisecond // How long the start of a line waits for its end.
	markDelay    = time.Second           // How long a count of dropped lines waits for more.
	batchBytes   = 256 << 10             // Records written by one system call.
	lineOverhead = recordHeader + 2 + 16 // What a line's record adds to its text, at most.
)

// Writer appends the output of one attempt. It may be used by one goroutine
// per stream. A Writer never blocks on a reader, and an error of Write is
// about the log alone: the caller logs it once and goes on draining the pipe.
type Writer struct {
	limits Limits

	// Held over file I/O too: the order of records is the order of numbers,
	// and there is nothing else to do meanwhile.
	mu sync.Mutex

	ring         ring
	seq          uint64 // The last number given.
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
	skipped bool // The start of this line was dropped: so is the rest.
}

// add appends more of the line.
func (h *heldLine) add(at compute.Instant, p []byte) {
	if len(h.text) == 0 {
		h.at = at
	}
	h.text = append(h.text, p...)
}

// drop counts the lines that the next mark will tell of.
type drop struct {
	active bool
	lines  int64
	bytes  int64
	cause  string
}

// Create returns a Writer of the output at path, whose directory it makes. It
// continues a file that a Writer left without Close: a torn record at its end
// is cut off. The code is conflict when the output is complete already
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
// over the rate and lines that the disk refuses are dropped and counted by a
// mark. Lines of System are never over the rate.
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

// Close writes what is held back and the end record, and makes all of it
// durable. The Writer is closed also when it returns an error.
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
	w.bucket.tokens = w.limits.BytesPerSecond // The last words are not over the rate.
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

// split cuts p into lines and keeps the start of an unfinished one.
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

// skip drops all of p. It only counts, so that a flood costs no more than it
// takes to read it.
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

// line appends one line, the held start of it in front, unless it has to be
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

// keep buffers l, after a flush when there is no room.
func (w *Writer) keep(l Line) error {
	var err error
	if len(w.buf)+len(l.Text)+lineOverhead > w.limits.batch() {
		err = w.flush()
	}
	w.number(l)
	return err
}

// number gives l its number and buffers its record.
func (w *Writer) number(l Line) {
	w.seq++
	l.Seq = w.seq
	if len(w.buf) == 0 {
		w.first = l.Seq
	}
	w.buf = appendLine(w.buf, l)
}

// admit reports whether a record of n bytes is within the rate. Once the rate
// was exceeded it stays closed until a second's worth is free again, so that a
// flood shows one mark a second and not one between any two lines.
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

// mark appends the line that tells what was dropped and opens the log again.
func (w *Writer) mark() error {
	if err := w.flush(); err != nil {
		return err
	}
	d := w.drop
	text := fmt.Sprintf("[berth: %d lines (%s) dropped here: %s]", d.lines, sizeText(d.bytes), d.cause)
	w.drop.active = false // Or a refused flush could not close it again.
	if d.lines > 0 || d.bytes > 0 {
		w.number(Line{At: w.last, Stream: System, Text: []byte(text)})
	}
	if err := w.flush(); err != nil {
		// The mark itself, which flush has counted, is no lost line.
		w.count(-1, -int64(len(text)))
		return err
	}
	w.drop = drop{}
	return nil
}

// flush writes the buffered records. What the disk refuses is dropped, and
// counted; its numbers are given again, for no reader has seen them.
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

// settle counts the records of buf: the first n bytes, a whole number of
// records, were kept. It reports whether any was lost.
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

// flushPartial writes the starts of lines that waited for their ends.
func (w *Writer) flushPartial() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	// Both errors come back from the next Write: the disk is as full then.
	_ = w.emitHeld(false)
	_ = w.flush()
}

// flushMark tells of dropped lines when nothing more was written for a while.
func (w *Writer) flushMark() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || !w.drop.active {
		return
	}
	w.last = w.last.Add(markDelay)
	w.bucket.refill(w.last)
	_ = w.mark() // An error comes back from the next Write.
}

// emitHeld appends the held starts of lines as partial ones. A rune that is
// cut by the end waits on, unless all is to go.
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

// emit appends the first n bytes that are held of stream as a partial line.
func (w *Writer) emit(stream Stream, n int) error {
	held := &w.held[stream]
	rest := bytes.Clone(held.text[n:]) // Nearly always none, else within a rune.
	held.text = held.text[:n]
	err := w.line(stream, held.at, nil, true)
	held.text = append(held.text[:0], rest...)
	return err
}
