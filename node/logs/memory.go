package logs

import (
	"bufio"
	"io"
	"sync"
)

// memory holds the buffers that the followers of a node share.
type memory struct {
	large   chan struct{} // Holds a token per large batch that a follower delivers.
	buffers sync.Pool     // Holds *bufio.Reader values.
}

// largeBatches bounds the memory of followers whose clients do not read: so many have a
// large batch, and the others a small one. Those that read fast return theirs at once.
const largeBatches = 64

func newMemory() *memory { return &memory{large: make(chan struct{}, largeBatches)} }

// takeReader returns a reader of r with a large buffer.
func (m *memory) takeReader(r io.Reader) *bufio.Reader {
	if b, ok := m.buffers.Get().(*bufio.Reader); ok {
		b.Reset(r)
		return b
	}
	return bufio.NewReaderSize(r, wireBuffer)
}

// giveReader gives back what takeReader returned.
func (m *memory) giveReader(b *bufio.Reader) {
	b.Reset(nil)
	m.buffers.Put(b)
}
