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
	flagCopy    = 0x80     // In the byte that holds the mode: the node whose output it is a copy of follows.
	wireBuffer  = 16 << 10 // Bytes that a receiver buffers while records arrive.
	waitBuffer  = 64       // Bytes that a waiting receiver buffers.
	lagWait     = 2 * time.Second
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
	limit int    // The limit of a modeTail or modeSearch request.
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
	w    io.Writer
	buf  []byte
	last time.Time // When the last record was sent.
}

// lines sends a batch.
func (s *sender) lines(lines []Line) error {
	s.buf = s.buf[:0]
	for _, l := range lines {
		s.buf = appendLine(s.buf, l)
	}
	return s.send()
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

func (s *sender) send() error {
	s.last = time.Now() //nolint:forbidigo // A stopwatch.
	_, err := s.w.Write(s.buf)
	return err
}

// receiver reads the answer to a request. It closes a stream that is silent for
// deadAfter.
type receiver struct {
	stream io.Reader
	r      *bufio.Reader // Either waiting or one of memory.buffers.
	waits  *bufio.Reader
	buf    []byte
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
	r = &receiver{stream: stream, waits: bufio.NewReaderSize(stream, waitBuffer), memory: m}
	r.r = r.waits
	r.watch = time.AfterFunc(deadAfter, func() { _ = stream.Close() })
	unhook := context.AfterFunc(ctx, func() { _ = stream.Close() })
	return r, func() {
		unhook()
		r.watch.Stop()
		_ = stream.Close() // It was read to its end or is abandoned.
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
	if cap(r.buf) < recordHeader+n {
		r.buf = make([]byte, recordHeader+n)
	}
	r.buf = r.buf[:recordHeader+n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return record{}, err
	}
	if !r.patient {
		r.watch.Reset(deadAfter)
	}
	rec, _, err := parse(r.buf)
	return rec, err
}

// peek returns the header of the next record. A receiver that waits has a small buffer:
// there are thousands of them.
func (r *receiver) peek() ([]byte, error) {
	if r.r != r.waits && r.r.Buffered() == 0 {
		r.memory.giveReader(r.r)
		r.r, r.buf = r.waits, nil
	}
	head, err := r.r.Peek(recordHeader)
	if err != nil || r.r != r.waits || r.r.Buffered() < waitBuffer {
		return head, err
	}
	begun, err := r.waits.Peek(r.waits.Buffered())
	if err != nil {
		return nil, err
	}
	r.r = r.memory.takeReader(io.MultiReader(bytes.NewReader(bytes.Clone(begun)), r.stream))
	r.waits.Reset(r.stream)
	return r.r.Peek(recordHeader)
}

// lines calls fn with the lines behind number *after until the end of the
// answer. It advances *after.
func (r *receiver) lines(after *uint64, fn func([]Line) error) error {
	for {
		last := *after
		b, rec, err := r.batch(&last)
		if len(b.lines) > 0 {
			err := fn(b.lines)
			r.delivered(b)
			if err != nil {
				return stoppedError{err}
			}
			*after = last
		}
		if err != nil {
			return err
		}
		switch rec.kind {
		case kindEnd, kindOver:
			return nil
		case kindFault:
			return &rec.fault
		}
	}
}

// batch returns the lines behind number *last that are available without
// waiting, and advances *last. It also returns the record that ended the batch:
// the last line, or another kind of record.
func (r *receiver) batch(last *uint64) (b batch, rec record, err error) {
	for {
		rec, err = r.next()
		if err != nil || rec.kind != kindLine {
			return b, rec, err
		}
		if rec.line.Seq > *last {
			*last = rec.line.Seq
			r.limit(&b)
			b.add(rec.line)
		}
		if r.r.Buffered() == 0 || b.full() {
			return b, rec, nil
		}
	}
}

// limit chooses the size of a batch that is empty yet. It is not chosen earlier, because
// most receivers wait.
func (r *receiver) limit(b *batch) {
	if b.most.lines > 0 {
		return
	}
	b.most = smallBatch()
	select {
	case r.memory.large <- struct{}{}:
		b.most = largeBatch()
	default:
	}
}

// delivered ends the use of a batch.
func (r *receiver) delivered(b batch) {
	if b.most == largeBatch() {
		<-r.memory.large
	}
}

// stoppedError carries an error of the caller's function. It ends Follow
// without a retry.
type stoppedError struct{ err error }

func (s stoppedError) Error() string { return s.err.Error() }

// Serve answers the request of another node's Follower with the output on this
// node's disk. It returns when the answer is complete, when ctx ends or when w
// fails.
func (f *Follower) Serve(ctx context.Context, req []byte, w io.Writer) error {
	s := &sender{w: w, last: time.Now()} //nolint:forbidigo // A stopwatch.
	q, err := decodeRequest(req)
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
