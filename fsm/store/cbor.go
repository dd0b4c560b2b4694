package store

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Limits of decoded records.
const (
	maxNesting  = 8
	maxElements = 16 << 10 // Elements of one array or map.
)

// modes are the CBOR options of the package.
type modes struct {
	enc    cbor.EncMode
	dec    cbor.DecMode // For commands and records: an unknown field is an error.
	answer cbor.DecMode // For results, to which newer nodes may add fields.
}

// codec is built once and never changes: building it costs more than using
// it, and every command and record needs it.
var codec = newModes() //nolint:gochecknoglobals // Immutable.

func newModes() modes {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	options := cbor.DecOptions{
		DupMapKey:        cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:  maxNesting,
		MaxArrayElements: maxElements,
		MaxMapPairs:      maxElements,
		IndefLength:      cbor.IndefLengthForbidden,
		TagsMd:           cbor.TagsForbidden,
		Inf:              cbor.InfDecodeForbidden,
		NaN:              cbor.NaNDecodeForbidden,
	}
	answer, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	options.ExtraReturnErrors = cbor.ExtraDecErrorUnknownField
	dec, err := options.DecMode()
	if err != nil {
		panic(err)
	}
	return modes{enc, dec, answer}
}

// MustEncode returns the encoding of a record. Records are plain data, so it
// cannot fail.
func MustEncode(record any) []byte {
	data, err := Encode(record)
	if err != nil {
		panic(fmt.Errorf("encode %T: %w", record, err))
	}
	return data
}

// Encode returns the deterministic encoding of a value.
func Encode(value any) ([]byte, error) { return EncodeBehind(0, value) }

// EncodeBehind is Encode that leaves room for a header of some bytes in front.
func EncodeBehind(header int, value any) ([]byte, error) {
	e, p := pointerTo(value)
	if e == nil {
		data, err := codec.enc.Marshal(value)
		if err != nil || header == 0 {
			return data, err
		}
		return append(make([]byte, header, header+len(data)), data...), nil
	}
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	*buffer = e.append(*buffer, p)
	out := make([]byte, header+len(*buffer))
	copy(out[header:], *buffer)
	return out, nil
}

// hashOf returns the hash of a record's encoding.
func hashOf(record any) [sha256.Size]byte {
	buffer := takeBuffer()
	defer giveBuffer(buffer)
	*buffer = appendTo(*buffer, record)
	return sha256.Sum256(*buffer)
}

// appendTo appends the encoding of a record to dst.
func appendTo(dst []byte, record any) []byte {
	e, p := pointerTo(record)
	if e == nil {
		return append(dst, MustEncode(record)...)
	}
	return e.append(dst, p)
}

// buffers has *[]byte values for encodings that are not kept.
var buffers sync.Pool //nolint:gochecknoglobals // A cache of memory.

// maxBuffer bounds the bytes of a buffer that is kept for reuse.
const maxBuffer = 64 << 10

// takeBuffer returns an empty buffer.
func takeBuffer() *[]byte {
	if buffer, ok := buffers.Get().(*[]byte); ok {
		return buffer
	}
	const usual = 1 << 10
	buffer := make([]byte, 0, usual)
	return &buffer
}

// giveBuffer returns a buffer for reuse.
func giveBuffer(buffer *[]byte) {
	if cap(*buffer) <= maxBuffer {
		*buffer = (*buffer)[:0]
		buffers.Put(buffer)
	}
}
