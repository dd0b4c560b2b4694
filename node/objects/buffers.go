package objects

import (
	"sync"

	"berth/compute"
)

// largeBuffer is the size of a buffer for a chunk, also when it is encrypted.
const largeBuffer = compute.MaxChunk + 4<<10

// largeBuffers has buffers of largeBuffer bytes.
var largeBuffers = sync.Pool{New: func() any { //nolint:gochecknoglobals // Memory that all uploads and reads share.
	buf := make([]byte, largeBuffer)
	return &buf
}}

// buffer returns a buffer of a size or more.
func buffer(size int) []byte {
	if size <= smallBuffer {
		return make([]byte, size)
	}
	return *largeBuffers.Get().(*[]byte)
}

// reuse gives back a buffer that nothing uses.
func reuse(buf []byte) {
	if cap(buf) == largeBuffer {
		buf = buf[:largeBuffer]
		largeBuffers.Put(&buf)
	}
}
