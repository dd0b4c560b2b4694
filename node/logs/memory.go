package logs

import (
	"bufio"
	"io"
	"sync"
)

// memory holds the buffers that the followers of a node share.
type memory struct {
	large   chan struct{} // Holds a token for each follower that uses large buffers,
	windows chan struct{} // and one for each sender with a large window.
	readers sync.Pool     // Holds *bufio.Reader values of receivers.
	disk    sync.Pool     // Holds *readBuffer values.
	batches sync.Pool     // Holds *batch values.
	frames  sync.Pool     // Holds *[]byte values of senders.
}

// largeBatches bounds the memory of followers whose clients do not read: so many have a
// large batch, and the others a small one. Those that read fast return theirs at once.
const largeBatches = 64

// maxPooled bounds the buffers that are used again: a long line may have made them larger.
const maxPooled = 2 * readBytes

func newMemory() *memory {
	return &memory{large: make(chan struct{}, largeBatches), windows: make(chan struct{}, largeWindows)}
}

// takeLarge reports whether the caller may use large buffers, until it calls giveLarge.
func (m *memory) takeLarge() bool {
	select {
	case m.large <- struct{}{}:
		return true
	default:
		return false
	}
}

func (m *memory) giveLarge() { <-m.large }

// takeReader returns a reader of r with a large buffer.
func (m *memory) takeReader(r io.Reader) *bufio.Reader {
	if b, ok := m.readers.Get().(*bufio.Reader); ok {
		b.Reset(r)
		return b
	}
	return bufio.NewReaderSize(r, readBytes)
}

// giveReader gives back what takeReader returned.
func (m *memory) giveReader(b *bufio.Reader) {
	b.Reset(nil)
	m.readers.Put(b)
}

// readBuffer is where records from a disk are decoded.
type readBuffer struct {
	data  []byte
	lines []Line
}

// takeBuffer returns a buffer for one read of a disk.
func (m *memory) takeBuffer() *readBuffer {
	if m != nil {
		if b, ok := m.disk.Get().(*readBuffer); ok {
			return b
		}
	}
	return &readBuffer{data: make([]byte, readBytes)}
}

func (m *memory) giveBuffer(b *readBuffer) {
	if m != nil && len(b.data) <= maxPooled {
		m.disk.Put(b)
	}
}

// takeBatch returns an empty large batch.
func (m *memory) takeBatch() *batch {
	if b, ok := m.batches.Get().(*batch); ok {
		b.reset()
		return b
	}
	return &batch{texts: make([]byte, 0, readBytes), most: largeBatch()}
}

// giveBatch gives back a large batch, whose lines nobody uses any longer.
func (m *memory) giveBatch(b *batch) {
	if cap(b.texts) <= maxPooled {
		m.batches.Put(b)
	}
}

// takeFrame returns an empty buffer for a large batch on its way to another node.
func (m *memory) takeFrame() *[]byte {
	if b, ok := m.frames.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, readBytes))
}

func (m *memory) giveFrame(b *[]byte) {
	if cap(*b) <= maxPooled {
		*b = (*b)[:0]
		m.frames.Put(b)
	}
}
