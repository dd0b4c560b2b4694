package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"berth/compute"
	"berth/loop"
)

// The answer to a request is a stream of the same records that are on disk. A
// sender that has no record to send sends a heartbeat, so that a receiver can
// tell a quiet execution from a dead node.
const (
	idleAfter   = 5 * time.Second
	deadAfter   = 3 * idleAfter
	wireVersion = 1
	maxRequest  = 80 + MaxSearchText
	flagCopy    = 0x80    // In the byte that holds the mode: the node whose output it is a copy of follows.
	wireText    = 4 << 10 // Bytes of text in one record, unless one line is longer: receivers hold a record at a time.
	busyBuffer  = 4 << 10 // Bytes that a receiver buffers while records arrive, unless it may have a large buffer.
	waitBuffer  = 64      // Bytes that a waiting receiver buffers.
	lagWait     = 2 * time.Second
)

// Bits of the limit of a request for lines. Older nodes send 0 there, and ignore what they get.
const (
	understandsLines = 1 << iota // Records of several lines.
	acknowledges                 // The receiver says how much it has read, as Window.Received takes it.
)

// mode is the kind of a request.
type mode uint8

const (
	modeFollow mode = iota + 1 // Follows the output to its end.
	modeRead                   // Reads the output on disk, without waiting.
	modeTail
	modeSearch
	modeCopy // Asks how far the copy of an output goes.
)

// request asks a node for the output of an attempt that it holds.
type request struct {
	mode  mode
	of    attempt
	copy  compute.NodeID // The copy of that node's output; zero for the output itself.
	after uint64
	limit int    // The limit of a modeTail or modeSearch request, otherwise bits.
	query Search // The query of a modeSearch request, without its limit.
}

// encode returns the request's bytes.
func (q request) encode() []byte {
	b := append([]byte{wireVersion, byte(q.mode)}, q.of.execution.UUID[:]...)
	if !q.copy.IsZero() {
		b[1] |= flagCopy
		b = append(b, q.copy.UUID[:]...)
	}
	b = binary.AppendUvarint(b, q.of.epoch)
	b = binary.AppendUvarint(b, q.after)
	b = binary.AppendUvarint(b, uint64(q.limit))
	if q.mode == modeSearch {
		b = append(binary.AppendUvarint(b, uint64(q.query.Since)), byte(q.query.Least))
		b = append(b, q.query.Text...)
	}
	return b
}

// decodeRequest is the inverse of encode.
func decodeRequest(b []byte) (request, error) {
	if len(b) < 2+16 || len(b) > maxRequest || b[0] != wireVersion {
		return request{}, compute.Errorf(compute.CodeInvalid, "not a log request of version %d", wireVersion)
	}
	q := request{mode: mode(b[1] &^ flagCopy)}
	copy(q.of.execution.UUID[:], b[2:18])
	d := decoder{rest: b[18:]}
	if b[1]&flagCopy != 0 {
		d.bad = len(d.rest) < len(q.copy.UUID)
		d.rest = d.rest[copy(q.copy.UUID[:], d.rest):]
	}
	q.of.epoch, q.after = d.uvarint(), d.uvarint()
	q.limit = int(min(d.uvarint(), MaxTail))
	if q.mode == modeSearch {
		q.query = Search{Since: compute.Instant(d.uvarint()), Least: Level(d.byte()), Text: string(d.rest)}
	}
	if d.bad || q.mode < modeFollow || q.mode > modeCopy || q.of.execution.IsZero() ||
		q.copy.IsZero() != (b[1]&flagCopy == 0) || q.mode == modeCopy && q.copy.IsZero() {
		return request{}, compute.Errorf(compute.CodeInvalid, "malformed log request")
	}
	return q, nil
}

// sender writes the answer to a request.
type sender struct {
	w       io.Writer
	buf     []byte
	last    time.Time // When the last record was sent.
	grouped bool      // Several lines share a record.
	memory  *memory   // Nil if only one sender is at work.

	ctx    context.Context //nolint:containedctx // That of Serve; only with a window.
	window *Window         // Nil if the receiver does not say what it has read.
}

// lines sends a batch. A sender keeps only a small buffer: its client may not read.
func (s *sender) lines(lines []Line) error {
	if s.memory == nil || len(lines) <= smallBatch().lines && textSize(lines) <= smallBatch().bytes {
		s.buf = s.appendTo(s.buf[:0], lines)
		return s.send()
	}
	frame := s.memory.takeFrame()
	defer s.memory.giveFrame(frame)
	*frame = s.appendTo(*frame, lines)
	return s.write(*frame)
}

// appendTo appends the records of lines.
func (s *sender) appendTo(b []byte, lines []Line) []byte {
	for len(lines) > 0 {
		n := 1
		if s.grouped {
			n = ofOneRecord(lines, wireText)
		}
		b = appendLines(b, lines[:n])
		lines = lines[n:]
	}
	return b
}

// textSize returns how many bytes of text lines have.
func textSize(lines []Line) (n int) {
	for _, l := range lines {
		n += len(l.Text)
	}
	return n
}

// idle sends a heartbeat when nothing was sent for idleAfter.
func (s *sender) idle() error {
	if time.Since(s.last) < idleAfter {
		return nil
	}
	s.buf = appendMark(nil, kindIdle) // A quiet sender keeps no large buffer.
	return s.send()
}

// end sends the end record, or a record that the answer has none.
func (s *sender) end(final *Final) error {
	if final == nil {
		s.buf = appendMark(s.buf[:0], kindOver)
	} else {
		s.buf = appendEnd(s.buf[:0], *final)
	}
	return s.send()
}

func (s *sender) send() error { return s.write(s.buf) }

func (s *sender) write(b []byte) error {
	s.last = time.Now() //nolint:forbidigo // A stopwatch.
	for s.window != nil && len(b) > 0 {
		n, err := s.window.take(s.ctx, len(b))
		if err == nil {
			_, err = s.w.Write(b[:n])
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	if len(b) == 0 {
		return nil
	}
	_, err := s.w.Write(b)
	return err
}

// receiver reads the answer to a request. It closes a stream that is silent for
// deadAfter.
type receiver struct {
	stream io.Reader
	r      *bufio.Reader // The one that waits, or another while records arrive.
	waits  *bufio.Reader
	large  bool // r is one of memory.readers.
	buf    []byte
	parsed []Line         // The lines of the last record.
	acks   *acknowledging // Nil if the sender wants no reports of what was read.
	shrink func()         // Frees the buffer of a connection that has nothing for the receiver; nil for none.
	watch  *time.Timer
	memory *memory

	patient bool // The stream may be silent.
}

// endWatch lets the stream be silent for any time.
func (r *receiver) endWatch() {
	r.patient = true
	r.watch.Stop()
}

// newReceiver returns a receiver of stream. stop closes the stream.
func newReceiver(ctx context.Context, stream io.ReadCloser, m *memory) (r *receiver, stop func()) {
	r = &receiver{stream: stream, memory: m}
	if s, ok := stream.(interface{ Shrink() }); ok {
		r.shrink = s.Shrink
	}
	if to, ok := stream.(io.Writer); ok {
		r.acks = &acknowledging{Reader: stream, to: to}
		r.stream = r.acks
	}
	r.waits = bufio.NewReaderSize(r.stream, waitBuffer)
	r.r = r.waits
	r.watch = time.AfterFunc(deadAfter, func() { _ = stream.Close() })
	unhook := context.AfterFunc(ctx, func() { _ = stream.Close() })
	return r, func() {
		unhook()
		r.watch.Stop()
		_ = stream.Close() // It was read to its end or is abandoned.
		r.giveBack()
	}
}

// next returns the next record, which is valid until the next call.
func (r *receiver) next() (record, error) {
	head, err := r.peek()
	if err != nil {
		return record{}, err
	}
	n := int(binary.LittleEndian.Uint32(head))
	if n < 1 || n > maxBody {
		return record{}, errDamaged
	}
	data, err := r.whole(recordHeader + n)
	if err != nil {
		return record{}, err
	}
	if !r.patient {
		r.watch.Reset(deadAfter)
	}
	rec, _, err := parseInto(data, r.parsed)
	if rec.kind == kindLines {
		r.parsed = rec.lines
	}
	return rec, err
}

// whole returns the next n bytes, which are valid until the next call.
func (r *receiver) whole(n int) ([]byte, error) {
	if n <= r.r.Size() {
		data, err := r.r.Peek(n)
		if err == nil {
			_, err = r.r.Discard(n)
		}
		return data, err
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	_, err := io.ReadFull(r.r, r.buf)
	return r.buf, err
}

// peek returns the header of the next record. A receiver that waits has a small buffer:
// there are thousands of them.
func (r *receiver) peek() ([]byte, error) {
	if r.r.Buffered() == 0 {
		r.giveBack()
	}
	head, err := r.r.Peek(recordHeader)
	if err != nil || r.r != r.waits || r.r.Buffered() < waitBuffer {
		return head, err
	}
	begun, err := r.waits.Peek(r.waits.Buffered())
	if err != nil {
		return nil, err
	}
	from := io.MultiReader(bytes.NewReader(bytes.Clone(begun)), r.stream)
	if r.large = r.memory.takeLarge(); r.large {
		r.r = r.memory.takeReader(from)
	} else {
		r.r = bufio.NewReaderSize(from, busyBuffer)
	}
	r.waits.Reset(r.stream)
	return r.r.Peek(recordHeader)
}

// acknowledging is a stream that reports to its sender how much of it was read.
type acknowledging struct {
	io.Reader

	to   io.Writer
	read int // Since the last report.
}

// Read reads from the stream. It reports before it may wait: its sender may wait for that.
func (a *acknowledging) Read(p []byte) (int, error) {
	if err := a.send(); err != nil {
		return 0, err
	}
	n, err := a.Reader.Read(p)
	a.read += n
	return n, err
}

// send reports to the sender if enough bytes were read: what is left of its window is always
// more than the least that it sends.
func (a *acknowledging) send() error {
	if a.read < ackAfter {
		return nil
	}
	_, err := a.to.Write(binary.BigEndian.AppendUint32(nil, uint32(a.read)))
	a.read = 0
	return err
}

// giveBack returns to the buffer of a receiver that waits.
func (r *receiver) giveBack() {
	switch {
	case r.large:
		r.memory.giveReader(r.r)
		r.memory.giveLarge()
	case r.r != r.waits && r.shrink != nil:
		r.shrink() // There are many followers: it was denied a large buffer.
	}
	r.r, r.large, r.buf, r.parsed = r.waits, false, nil, nil
}

// lines calls fn with the lines behind number *after until the end of the
// answer. It advances *after. The lines are valid during the call.
func (r *receiver) lines(after *uint64, fn func([]Line) error) error {
	for {
		rec, err := r.next()
		if err != nil {
			return err
		}
		switch rec.kind {
		case kindEnd, kindOver:
			return nil
		case kindFault:
			return &rec.fault
		}
		if err := r.deliver(rec, after, fn); err != nil {
			return err
		}
	}
}

// deliver calls fn with the lines of rec, and of those that can be read without waiting.
func (r *receiver) deliver(rec record, after *uint64, fn func([]Line) error) error {
	d := delivery{batch: &batch{most: smallBatch()}, after: after, last: *after, fn: fn}
	if r.large {
		d.batch = r.memory.takeBatch()
		defer r.memory.giveBatch(d.batch)
	}
	for {
		if err := d.add(rec); err != nil {
			return err
		}
		if r.r.Buffered() == 0 || !r.moreLines() {
			return d.flush()
		}
		var err error
		if rec, err = r.next(); err != nil {
			return firstOf(d.flush(), err)
		}
	}
}

// moreLines reports whether the next record, of which something is buffered, has lines.
func (r *receiver) moreLines() bool {
	head, err := r.r.Peek(recordHeader + 1)
	return err == nil && (head[recordHeader] == kindLine || head[recordHeader] == kindLines)
}

// stoppedError carries an error of the caller's function. It ends Follow
// without a retry.
type stoppedError struct{ err error }

func (s stoppedError) Error() string { return s.err.Error() }

// Serve answers the request of another node's Follower with the output on this
// node's disk. It returns when the answer is complete, when ctx ends or when w
// fails. The window gets what the other node sends meanwhile; nil for an answer of any size.
func (f *Follower) Serve(ctx context.Context, req []byte, w io.Writer, window *Window) error {
	s := &sender{w: w, last: time.Now()} //nolint:forbidigo // A stopwatch.
	q, err := decodeRequest(req)
	if lines := q.mode == modeFollow || q.mode == modeRead; lines && q.limit&acknowledges != 0 && window != nil {
		s.ctx, s.window, window.memory = ctx, window, f.cfg.Store.memory
		defer window.close()
	}
	if err == nil {
		err = f.serve(ctx, q, s)
	}
	if err == nil {
		return nil
	}
	if _, lost := errors.AsType[stoppedError](err); !lost && ctx.Err() == nil {
		s.buf = appendFault(s.buf[:0], err)
		err = errors.Join(err, s.send())
	}
	return fmt.Errorf("serve log: %w", err)
}

func (f *Follower) serve(ctx context.Context, q request, s *sender) error {
	store := f.cfg.Store
	if !q.copy.IsZero() {
		if f.cfg.Copies == nil {
			return compute.Errorf(compute.CodeNotFound, "There are no copies of output here.")
		}
		store = f.cfg.Copies.From(q.copy)
	}
	if q.mode == modeCopy {
		return halt(s.sendCopy(f.copyHere(q.copy, q.of)))
	}
	if q.mode == modeTail {
		return store.tail(ctx, q.of, q.limit, func(t Tail) error { return halt(s.tail(t)) })
	}
	if q.mode == modeSearch {
		q.query.Limit = q.limit
		return store.search(ctx, q.of, q.query, func(r Found) error { return halt(s.found(r)) })
	}
	s.grouped, s.memory = q.limit&understandsLines != 0, f.cfg.Store.memory
	h := hooks{
		ended: always,
		lines: func(l []Line) error { return halt(s.lines(l)) },
		idle:  func() error { return halt(s.idle()) },
	}
	if q.mode == modeFollow {
		if err := f.awaitKnown(ctx, q.of.execution); err != nil {
			return err
		}
		h.ended = func() bool { return f.ended(ctx, q.of) }
	}
	final, err := store.follow(ctx, q.of, q.after, h)
	if err != nil {
		return err
	}
	return halt(s.end(final))
}

// awaitKnown waits until this node knows an execution. Its replica may lag behind that of
// the node that asks; output that is not there yet would seem empty.
func (f *Follower) awaitKnown(ctx context.Context, id compute.ExecutionID) error {
	wait, cancel := context.WithTimeout(ctx, lagWait)
	defer cancel()
	err := loop.Until(wait, changePause, func() bool {
		_, _, err := f.cfg.State.Attempts(wait, id)
		return compute.CodeOf(err) != compute.CodeNotFound
	})
	if err != nil && ctx.Err() == nil {
		return compute.Errorf(compute.CodeUnavailable, "This node does not know the execution.").Retry(retryLast)
	}
	return err
}

// halt marks an error that ends the call without a retry or an answer.
func halt(err error) error {
	if err == nil {
		return nil
	}
	return stoppedError{err}
}
