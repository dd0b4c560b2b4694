package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// This file is for copies of output on other nodes, which are made chunk by chunk and
// byte by byte, so that readers read them as the output itself.

// Chunks returns the numbers of the chunks of the output at path, in order.
func Chunks(path string) ([]int, error) {
	numbers, err := chunksOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return numbers, err
}

// ChunkPath returns the path of chunk n of the output at path.
func ChunkPath(path string, n int) string { return chunkPath(path, n) }

// Displaced reports whether the ring drops chunk old by the time that it starts chunk n.
func Displaced(old, n int) bool { return old >= headChunks && old <= n-(ringChunks-headChunks) }

// MaxChunk bounds the size of a chunk file.
const MaxChunk = diskFactor * DefaultRingBytes / ringChunks

// ReadWhole appends to b the whole records that file has from off on, at most about
// limit bytes of them, but at least one. It reports whether the last one of them ends
// the output.
func ReadWhole(file *os.File, off int64, b []byte, limit int) (out []byte, end bool, err error) {
	start := len(b)
	for size := limit; ; {
		b = append(b[:start], make([]byte, size)...)
		n, err := file.ReadAt(b[start:], off)
		if err != nil && !errors.Is(err, io.EOF) {
			return b[:start], false, fmt.Errorf("read log: %w", err)
		}
		whole, end := countRecords(b[start : start+n])
		if whole == 0 && n == size && n >= recordHeader && validSize(b[start:]) && recordSize(b[start:]) > size {
			size = recordSize(b[start:])
			continue
		}
		return b[:start+whole], end, nil
	}
}

// validSize reports whether b starts with the header of a record of a possible size.
func validSize(b []byte) bool {
	n := binary.LittleEndian.Uint32(b)
	return n >= 1 && n <= maxBody
}

// countRecords returns how many bytes of b are whole records, and whether the last of
// them ends the output. It decodes none.
func countRecords(b []byte) (n int, end bool) {
	for {
		rest := b[n:]
		if len(rest) < recordHeader || !validSize(rest) || len(rest) < recordSize(rest) {
			return n, end
		}
		body := rest[recordHeader:recordSize(rest)]
		if checksum(body) != binary.LittleEndian.Uint32(rest[4:]) {
			return n, end
		}
		n, end = n+recordSize(rest), body[0] == kindEnd
	}
}
