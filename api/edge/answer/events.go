package answer

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"berth/api/edge/connection"
)

// EventStream is the media type of events.
const EventStream = "text/event-stream"

// Events is a streamed answer. It runs in its own goroutine until it returns or
// a write fails.
// Its context ends when the client hangs up, and when streams have to end.
type Events func(ctx context.Context, w *EventWriter)

// EventWriter writes server-sent events to one client. It holds a buffer only between the
// first event of a batch and its flush: a node has thousands of clients that wait.
type EventWriter struct {
	conn    net.Conn
	to      io.Writer
	framed  bool // As chunks of HTTP/1.1.
	buffers *EventBuffers
	buf     *[]byte      // Nil if it is empty.
	zip     *gzip.Writer // Compresses batches into packed; nil for none.
	packed  bytes.Buffer // Empty between batches.
}

// newZip returns a writer of gzip whose output is complete after each write. It keeps no memory
// between them, as a node has thousands of streams.
func newZip(to io.Writer) *gzip.Writer {
	zip, err := gzip.NewWriterLevel(to, gzip.StatelessCompression)
	if err != nil {
		panic(err) // The level is one of the package's.
	}
	return zip
}

// Sizes of batches of events.
const (
	batchBytes = 32 << 10 // A batch of so many bytes is written before its flush.
	smallBatch = 16 << 10 // Batches up to this size have buffers of their own: most are much smaller.
	frameHead  = 10       // Bytes of a chunk's length: eight hexadecimal digits and the line's end.
)

// EventBuffers are buffers for one batch of events each, as *[]byte.
type EventBuffers struct{ small, large sync.Pool }

// take returns an empty buffer for about size bytes.
func (b *EventBuffers) take(size int) *[]byte {
	pool, first := &b.small, 2<<10
	if size > smallBatch {
		pool, first = &b.large, 2*batchBytes
	}
	if buf, ok := pool.Get().(*[]byte); ok {
		return buf
	}
	return new(make([]byte, 0, first))
}

// give gives back a buffer.
func (b *EventBuffers) give(buf *[]byte) {
	*buf = (*buf)[:0]
	switch n := cap(*buf); {
	case n <= smallBatch:
		b.small.Put(buf)
	case n >= 2*batchBytes && n <= 4*batchBytes:
		b.large.Put(buf)
	}
}

// begin makes space for about size bytes more of the batch and returns it.
func (e *EventWriter) begin(size int) []byte {
	switch {
	case e.buf == nil:
		e.buf = e.buffers.take(size)
		*e.buf = append(*e.buf, make([]byte, frameHead)...)
	case len(*e.buf)+size > max(cap(*e.buf), smallBatch):
		larger := e.buffers.take(len(*e.buf) + size)
		*larger = append(*larger, *e.buf...)
		e.buffers.give(e.buf)
		e.buf = larger
	}
	return *e.buf
}

// Append writes one event whose data appendTo appends: JSON of about size bytes, in one
// line. The client gets it at the next flush.
func (e *EventWriter) Append(id uint64, size int, appendTo func([]byte) []byte) error {
	b := append(e.begin(size), "id: "...)
	b = append(strconv.AppendUint(b, id, 10), "\ndata: "...)
	return e.added(append(appendTo(b), "\n\n"...))
}

// Event writes one event without an id, with data as JSON. The client gets it at the next
// flush.
func (e *EventWriter) Event(data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	b := append(e.begin(len(text)), "data: "...)
	return e.added(append(append(b, text...), "\n\n"...))
}

// added ends an event.
func (e *EventWriter) added(b []byte) error {
	*e.buf = b
	if len(b) >= batchBytes {
		return e.Flush()
	}
	return nil
}

// Comment writes a line that clients ignore.
func (e *EventWriter) Comment() error {
	*e.buf = append(e.begin(0), ": berth\n\n"...)
	return e.Flush()
}

// Flush sends buffered data and extends the write deadline.
func (e *EventWriter) Flush() error {
	if err := e.conn.SetWriteDeadline(time.Now().Add(connection.WriteTimeout)); err != nil {
		return err
	}
	if e.buf == nil {
		return nil
	}
	buf := e.buf
	e.buf = nil
	if e.zip != nil {
		if _, err := e.zip.Write((*buf)[frameHead:]); err != nil {
			return err
		}
		e.takePacked(buf)
	}
	return e.send(buf)
}

// takePacked replaces what is behind the space for a frame by what was compressed.
func (e *EventWriter) takePacked(buf *[]byte) {
	*buf = append((*buf)[:frameHead], e.packed.Bytes()...)
	e.packed = bytes.Buffer{} // Its memory is for the garbage collector, as streams mostly wait.
}

// send sends a batch, behind the space for its frame, and gives its buffer back.
func (e *EventWriter) send(buf *[]byte) error {
	data := *buf
	if e.framed {
		data = append(data, "\r\n"...)
		*buf = data
		var size [4]byte
		binary.BigEndian.PutUint32(size[:], uint32(len(data)-frameHead-len("\r\n")))
		hex.Encode(data, size[:])
		copy(data[2*len(size):], "\r\n")
	} else {
		data = data[frameHead:]
	}
	_, err := e.to.Write(data)
	e.buffers.give(buf)
	return err
}

// NewEventWriter returns a writer to a client that is reached through to, on conn. Events are
// framed as chunks of HTTP/1.1, or not at all.
func NewEventWriter(conn net.Conn, to io.Writer, framed bool, buffers *EventBuffers) *EventWriter {
	return &EventWriter{conn: conn, to: to, framed: framed, buffers: buffers}
}

// Compress has the events sent as gzip, each batch complete.
func (e *EventWriter) Compress() { e.zip = newZip(&e.packed) }

// End ends the stream, after its last event.
func (e *EventWriter) End() {
	if e.zip != nil && e.zip.Close() == nil {
		buf := e.buffers.take(0)
		*buf = append(*buf, make([]byte, frameHead)...)
		e.takePacked(buf)
		_ = e.send(buf) // As below.
	}
	if e.framed {
		_, _ = io.WriteString(e.to, "0\r\n\r\n") // Or the client is gone.
	}
}
