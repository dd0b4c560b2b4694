package logs

import (
	"bytes"
	"errors"
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
	lineOverhead = recordHeader + 2 + 16 // Upper bound of the bytes that a record adds to the text of its line.
)

// Writer appends the output of one attempt. Each stream may have one goroutine
// that writes. A Writer never blocks on a reader. An error of Write concerns
// only the log: the caller logs it once and continues to drain the pipe.
//
// Up to Limits.PacedBytes nothing is dropped: the caller slows the code down with
// Pause. After that, output over the rate goes to the streams' tails. When the rate
// falls or the code ends, the log gets the output that the tails still hold.
type Writer struct {
	limits Limits

	// mu is also held during file I/O, so that records are written in the order of
	// their numbers. There is no other work to do meanwhile.
	mu sync.Mutex

	ring         ring
	seq          uint64 // The last number assigned.
	pending      batch  // Lines not yet written, with the text of the code.
	buf          []byte // Records of pending.
	last         compute.Instant
	written      int64 // Bytes of the code so far, stored or not.
	held         [streams]heldLine
	tails        [streams]streamTail
	bucket       bucket
	flood        flood
	stats        Stats
	closed       bool
	partialTimer *time.Timer
	markTimer    *time.Timer
}

// heldLine is the start of a line whose end has not been read yet.
type heldLine struct {
	text []byte
	at   compute.Instant
}

// add appends more of the line.
func (h *heldLine) add(at compute.Instant, p []byte) {
	if len(h.text) == 0 {
		h.at = at
	}
	h.text = append(h.text, p...)
}

// flood is the state of a log that is closed to the code's output.
type flood struct {
	active bool
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
	w.written = w.ring.total
	w.partialTimer = time.AfterFunc(time.Hour, w.flushPartial)
	w.partialTimer.Stop()
	w.markTimer = time.AfterFunc(time.Hour, w.flushMark)
	w.markTimer.Stop()
	return w, nil
}

// Write appends p, raw bytes as read from a pipe at the given instant. Lines of
// System are exempt from the rate.
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
	var err error
	if w.flood.active && (w.bucket.full() || stream == System) {
		err = w.endFlood()
	}
	if stream != System {
		w.written += int64(len(p))
		w.stats.Received += int64(len(p))
		w.stats.ReceivedLines += int64(bytes.Count(p, []byte{'\n'}))
		w.tails[stream].add(p)
		if !w.flood.active && !w.admit(int64(len(p))) {
			w.startFlood("more than " + sizeText(w.limits.BytesPerSecond) + "/s")
		}
	}
	err = firstOf(err, w.split(stream, at, p))
	err = firstOf(err, w.flush())
	if len(w.held[stream].text) > 0 {
		w.partialTimer.Reset(partialDelay)
	}
	return wrapWrite(err)
}

// Pause returns how long the caller of Write waits before it reads more, so that
// the code is slowed down to the rate instead of losing output.
func (w *Writer) Pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bucket.debt()
}

func wrapWrite(err error) error {
	if err != nil {
		return fmt.Errorf("write log: %w", err)
	}
	return nil
}

// Close writes what is left of the output, the held starts of lines and the end
// record, and makes the output durable. The Writer is closed even when Close returns
// an error.
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
	var err error
	if w.flood.active {
		err = w.endFlood()
	}
	err = firstOf(err, w.emitHeld(true))
	err = firstOf(err, w.flush())
	err = firstOf(err, w.repeatTails())
	err = firstOf(err, w.flush())
	for _, t := range w.tails { // If the disk refuses the end too.
		w.stats.DroppedLines += t.lines
		w.stats.DroppedBytes += t.unsaved
	}
	w.buf = appendEnd(w.buf[:0], final)
	if _, e := w.ring.write(w.buf, w.seq+1, w.last, textBytes{}); e != nil {
		err = firstOf(err, e)
	}
	if err = firstOf(err, w.ring.close()); err != nil {
		return fmt.Errorf("close log: %w", err)
	}
	return nil
}

// Release writes the held starts of lines and closes w without an end: another
// Writer continues the output.
func (w *Writer) Release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.closed = true
	w.partialTimer.Stop()
	w.markTimer.Stop()
	// Output that cannot be written is missing, as after a crash.
	_ = firstOf(w.emitHeld(true), w.flush())
	_ = errors.Join(w.ring.closeFile(), w.ring.unlock())
}

// Stats returns what w did so far.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stats
	for i := range w.tails {
		if text := w.tails[i].text; len(text) > 0 && text[len(text)-1] != '\n' {
			s.ReceivedLines++
		}
	}
	return s
}

// split cuts p into lines and holds the start of an unfinished one.
func (w *Writer) split(stream Stream, at compute.Instant, p []byte) (err error) {
	held := &w.held[stream]
	for len(p) > 0 && !w.flood.active {
		left := w.limits.LineBytes - len(held.text)
		i := bytes.IndexByte(p, '\n')
		switch {
		case i >= 0 && i <= left:
			err = firstOf(err, w.line(stream, at, p[:i], false))
			p = p[i+1:]
		case len(p) >= left:
			held.add(at, p[:left])
			p = p[left:]
			err = firstOf(err, w.emit(stream, max(wholeRunes(held.text), 1)))
		default:
			held.add(at, p)
			p = nil
		}
	}
	w.countUnsaved(stream, int64(len(p)), int64(bytes.Count(p, []byte{'\n'}))) // The disk has refused what came before.
	return err
}

// countUnsaved counts bytes of the code that are not stored, and the line feeds in them.
func (w *Writer) countUnsaved(stream Stream, bytes, lines int64) {
	w.tails[stream].unsaved += bytes
	w.tails[stream].lines += lines
}

// line appends one line, preceded by its held start.
func (w *Writer) line(stream Stream, at compute.Instant, text []byte, partial bool) error {
	held := &w.held[stream]
	if len(held.text) > 0 {
		at, text = held.at, append(held.text, text...)
		held.text = text[:0]
	}
	return w.keep(Line{At: at, Stream: stream, Text: text, Partial: partial})
}

// keep buffers l. It flushes first when the buffer is full.
func (w *Writer) keep(l Line) error {
	if w.pending.bytes+len(l.Text)+lineOverhead*(len(w.pending.lines)+1) > w.limits.batch() {
		if err := w.flush(); err != nil {
			w.lose([]Line{l})
			return err
		}
	}
	w.seq++
	l.Seq = w.seq
	w.pending.add(l)
	return nil
}

// admit reports whether n bytes may be stored now. Up to PacedBytes all are, and the
// caller pauses. After that, a flood shows one mark a second instead of one between
// any two lines.
func (w *Writer) admit(n int64) bool {
	if w.written <= w.limits.PacedBytes {
		w.bucket.tokens -= n
		return true
	}
	return w.bucket.take(n)
}

// startFlood closes the log until the next mark. The held starts of lines are not
// stored either.
func (w *Writer) startFlood(cause string) {
	w.flood = flood{active: true, cause: cause}
	for i := range w.held {
		w.countUnsaved(Stream(i), int64(len(w.held[i].text)), 0)
		w.held[i].text = w.held[i].text[:0]
	}
	w.bucket.tokens = 0
	w.markTimer.Reset(markDelay)
}

// endFlood appends a line that reports what was dropped, then the end of each stream
// that was not stored, and opens the log again.
func (w *Writer) endFlood() error {
	lines, size := int64(0), int64(0)
	var ends [streams][]byte
	for i := range w.tails {
		t := &w.tails[i]
		ends[i] = bytes.Clone(t.end())
		lines += t.lines - int64(bytes.Count(ends[i], []byte{'\n'}))
		size += t.unsaved - int64(len(ends[i]))
	}
	if size > 0 {
		text := fmt.Sprintf("[berth: %d lines (%s) dropped here: %s]", lines, sizeText(size), w.flood.cause)
		err := w.keep(Line{At: w.last, Stream: System, Text: []byte(text)})
		if err = firstOf(err, w.flush()); err != nil {
			return err // The log stays closed.
		}
		w.stats.DroppedLines += lines
		w.stats.DroppedBytes += size
	}
	w.flood = flood{}
	var err error
	for i, text := range ends {
		w.tails[i].unsaved, w.tails[i].lines = 0, 0
		err = firstOf(err, w.split(Stream(i), w.last, text))
	}
	return firstOf(err, w.flush())
}

// flush writes the buffered lines. Lines that the disk refuses are unsaved again,
// and their numbers are used again, because no reader has seen them.
func (w *Writer) flush() error {
	if len(w.pending.lines) == 0 {
		return nil
	}
	lines := w.pending.lines
	w.pending = batch{lines: lines[:0], texts: w.pending.texts[:0]}
	for len(lines) > 0 {
		n := ofOneRecord(lines, maxRecordText)
		w.buf = appendLines(w.buf[:0], lines[:n])
		if size, err := w.ring.write(w.buf, lines[0].Seq, w.last, textOf(lines[:n])); size < len(w.buf) {
			w.seq = lines[0].Seq - 1
			w.lose(lines)
			return err
		}
		for _, l := range lines[:n] {
			w.stats.Bytes += int64(len(l.Text))
		}
		w.stats.Lines += int64(n)
		lines = lines[n:]
	}
	return nil
}

// lose closes the log after the disk has refused lines. Lines of System are lost; a
// mark is made again.
func (w *Writer) lose(lines []Line) {
	for _, l := range lines {
		switch {
		case l.Stream == System:
		case l.Partial:
			w.countUnsaved(l.Stream, userBytes(l), 0)
		default:
			w.countUnsaved(l.Stream, userBytes(l), 1)
		}
	}
	w.startFlood("the disk refused them")
}

// repeatTails appends the last output of each stream once more if the ring has
// dropped a part of it, because the other stream has written much since.
func (w *Writer) repeatTails() (err error) {
	for stream := range w.tails {
		tail := w.tails[stream].bytes()
		tail = tail[max(len(tail)-int(w.limits.chunkBytes()), 0):]
		lost := w.ring.droppedOf(Stream(stream))
		if kept := w.ring.keptOf(Stream(stream)); lost == 0 || kept >= int64(len(tail)) {
			continue
		}
		text := fmt.Sprintf("[berth: the last %s of %s again, of which a part was dropped above]",
			sizeText(int64(len(tail))), Stream(stream))
		err = firstOf(err, w.keep(Line{At: w.last, Stream: System, Text: []byte(text)}))
		err = firstOf(err, w.split(Stream(stream), w.last, bytes.Clone(wholeLines(tail))))
		err = firstOf(err, w.emitHeld(true))
	}
	return err
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
	if w.closed || !w.flood.active {
		return
	}
	w.last = w.last.Add(markDelay)
	w.bucket.refill(w.last)
	_ = w.endFlood() // The next Write returns the error.
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
	if w.flood.active {
		w.countUnsaved(stream, int64(len(rest)), 0)
		return err
	}
	held.text = append(held.text[:0], rest...)
	return err
}
