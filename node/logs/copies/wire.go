package copies

import (
	"encoding/binary"
	"fmt"
	"io"

	"berth/compute"
	"berth/node/logs"
)

// A stream carries requests and answers in turn, each with its length in front. A
// request has pieces of several outputs. Its answer has how far each copy goes, in the
// same order.
//
//	piece     execution 16, then uvarints: epoch, chunk, offset, flags, length; bytes
//	position  uvarints: chunk plus one (0: there is no copy), size of the chunk
const (
	wireVersion = 1
	maxPieces   = 256
	pieceBytes  = 64 << 10  // Bytes of one output in one request.
	frameBytes  = 256 << 10 // Bytes of all outputs in one request, unless one record is larger.
	maxFrame    = frameBytes + 2<<20

	flagComplete = 1 // The output ends with this piece.
)

// attempt names an output.
type attempt struct {
	execution compute.ExecutionID
	epoch     uint64
}

// position is how far a copy goes.
type position struct {
	chunk int // -1: there is no copy.
	size  int64
}

// nowhere is the position of a copy that does not exist.
func nowhere() position { return position{chunk: -1} }

// piece is a part of a chunk, or none of it: then it asks for the position.
type piece struct {
	of       attempt
	at       position
	complete bool
	data     []byte
}

// appendPiece appends the bytes of p.
func appendPiece(b []byte, p piece) []byte {
	b = append(b, p.of.execution.UUID[:]...)
	flags := uint64(0)
	if p.complete {
		flags = flagComplete
	}
	for _, n := range []uint64{p.of.epoch, uint64(max(p.at.chunk, 0)), uint64(p.at.size), flags, uint64(len(p.data))} {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, p.data...)
}

// decodePieces returns the pieces of a request. Their bytes alias it.
func decodePieces(b []byte) (pieces []piece, err error) {
	for len(b) > 0 {
		var p piece
		if len(pieces) == maxPieces || len(b) < len(p.of.execution.UUID) {
			return nil, malformed()
		}
		b = b[copy(p.of.execution.UUID[:], b):]
		var fields [5]uint64
		for i := range fields {
			field, n := binary.Uvarint(b)
			if n <= 0 {
				return nil, malformed()
			}
			fields[i], b = field, b[n:]
		}
		epoch, chunk, offset, flags, size := fields[0], fields[1], fields[2], fields[3], fields[4]
		if p.of.execution.IsZero() || chunk > maxChunks || size > uint64(len(b)) || offset > logs.MaxChunk ||
			offset+size > logs.MaxChunk {
			return nil, malformed()
		}
		p.of.epoch, p.at = epoch, position{int(chunk), int64(offset)}
		p.complete, p.data = flags&flagComplete != 0, b[:size]
		pieces, b = append(pieces, p), b[size:]
	}
	return pieces, nil
}

// maxChunks bounds the number of a chunk: at 10 MiB/s it takes longer than machines last.
const maxChunks = 1 << 31

func malformed() error {
	return compute.Errorf(compute.CodeInvalid, "malformed copy of output")
}

// appendPosition appends the bytes of p.
func appendPosition(b []byte, p position) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.chunk+1)), uint64(max(p.size, 0)))
}

// decodePositions returns the n positions of an answer.
func decodePositions(b []byte, n int) ([]position, error) {
	out := make([]position, 0, n)
	for range n {
		chunk, used := binary.Uvarint(b)
		if used <= 0 || chunk > maxChunks {
			return nil, malformed()
		}
		b = b[used:]
		size, used := binary.Uvarint(b)
		if used <= 0 || size > logs.MaxChunk {
			return nil, malformed()
		}
		b = b[used:]
		out = append(out, position{int(chunk) - 1, int64(size)})
	}
	return out, nil
}

// writeFrame writes b with its length in front. b begins with space for the length.
func writeFrame(w io.Writer, b []byte) error {
	binary.BigEndian.PutUint32(b, uint32(len(b)-frameHeader))
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("send output: %w", err)
	}
	return nil
}

// frameHeader is the size of the length in front of a frame.
const frameHeader = 4

// readFrame reads a frame into buf, which it enlarges if needed.
func readFrame(r io.Reader, buf []byte) ([]byte, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return buf[:0], err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > maxFrame {
		return buf[:0], malformed()
	}
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	_, err := io.ReadFull(r, buf)
	return buf, err
}
