package store

import (
	"fmt"
	"reflect"
	"unicode/utf8"
	"unsafe"

	"github.com/fxamacker/cbor/v2"
)

// maxPlanned is how deep items may lie that a plan decodes: below the limit of the codec,
// which decodes the others or refuses them.
const maxPlanned = maxNesting - 1

// decode sets what v points at to the value that data encodes. The codec decodes other forms
// than that of the plan of its type, and says what is an error.
func decode(mode cbor.DecMode, data []byte, v any) error {
	value := reflect.ValueOf(v).Elem()
	if e := encoderOf(value.Type()); e != nil && value.IsZero() {
		return decodeNew(e, mode, data, v, value.Addr().UnsafePointer())
	}
	return mode.Unmarshal(data, v)
}

// decodeNew is decode for a v that points at a zero value, which lies at p.
func decodeNew(e *encoder, mode cbor.DecMode, data []byte, v any, p unsafe.Pointer) error {
	if rest, ok := e.decode(data, p, maxPlanned); ok && len(rest) == 0 {
		return nil
	}
	reflect.ValueOf(v).Elem().SetZero()
	return mode.Unmarshal(data, v)
}

// newOf returns the value that data encodes.
func newOf[V any](data []byte) (*V, error) {
	v := new(V)
	return v, DecodeZero(data, v)
}

// DecodeZero sets v, which is zero, to the value that data encodes. After an error v is
// not defined.
func DecodeZero[V any](data []byte, v *V) error {
	if e := encoderOf(reflect.TypeFor[V]()); e != nil {
		return decodeNew(e, codec.dec, data, v, unsafe.Pointer(v))
	}
	return codec.dec.Unmarshal(data, v)
}

// MustDecode returns the record that MustEncode encoded.
func MustDecode[V any](data []byte) *V {
	v, err := newOf[V](data)
	if err != nil {
		panic(fmt.Errorf("decode %T: %w", v, err))
	}
	return v
}

// Decode sets what v points at to the value that data encodes. A field that it does not have
// is an error.
func Decode(data []byte, v any) error { return decode(codec.dec, data, v) }

// DecodeKnown is Decode, except that it ignores fields that the value does not have.
func DecodeKnown(data []byte, v any) error { return decode(codec.answer, data, v) }

// DecodeRecord sets v to the record that data is. V itself does not escape to the heap.
func DecodeRecord[V any](data []byte, v *V) error {
	whole, err := newOf[V](data)
	if err != nil {
		return fmt.Errorf("decode %T: %w", whole, err)
	}
	*v = *whole
	return nil
}

// decode sets the value at p, which is zero, to the first item of b, and returns what
// follows. It reports false where the codec has to decide. The value shares no memory with b.
func (e *encoder) decode(b []byte, p unsafe.Pointer, depth int) (rest []byte, ok bool) {
	major, n, size := Head(b)
	if size == 0 {
		return nil, false
	}
	if major == majorPlain && n == plainNull {
		nothing := e.kind == encodesPointer || e.kind == encodesSlice || e.kind == encodesBytes
		return b[size:], nothing && size == 1
	}
	switch e.kind {
	case encodesPointer:
		to := reflect.New(e.item.of).UnsafePointer()
		if rest, ok = e.item.decode(b, to, depth); ok {
			*(*unsafe.Pointer)(p) = to
		}
		return rest, ok
	case encodesUint:
		return b[size:], major == MajorUint && e.setUint(p, n)
	case encodesInt:
		return b[size:], e.setInt(p, major, n)
	case encodesBool:
		*(*bool)(p) = n == plainTrue
		return b[size:], size == 1 && major == majorPlain && (n == plainTrue || n == plainFalse)
	case encodesSlice, encodesArray, encodesRecord:
		if depth == 0 || n > maxElements || n > uint64(len(b)) {
			return nil, false
		}
		if e.kind == encodesRecord {
			return e.fieldsOf(b[size:], p, major, int(n), depth-1)
		}
		return e.elements(b[size:], p, major, int(n), depth-1)
	default:
		if n > uint64(len(b)-size) {
			return nil, false
		}
		text := b[size:][:n]
		return b[size+len(text):], e.setBytes(p, major, text)
	}
}

// setUint sets the number at p, if n fits.
func (e *encoder) setUint(p unsafe.Pointer, n uint64) bool {
	switch e.size {
	case 1:
		*(*uint8)(p) = uint8(n)
	case 2:
		*(*uint16)(p) = uint16(n)
	case 4:
		*(*uint32)(p) = uint32(n)
	default:
		*(*uint64)(p) = n
	}
	return e.uint(p) == n
}

// setInt sets the number at p, which has a sign, if it fits.
func (e *encoder) setInt(p unsafe.Pointer, major byte, n uint64) bool {
	i := int64(n)
	if i < 0 || major > majorNint {
		return false
	}
	if major == majorNint {
		i = -1 - i
	}
	e.setUint(p, uint64(i))
	return e.int(p) == i
}

// setBytes sets the value at p to the content of a text or of bytes.
func (e *encoder) setBytes(p unsafe.Pointer, major byte, content []byte) bool {
	if e.kind == encodesText {
		if major != majorText || !utf8.Valid(content) {
			return false
		}
		*(*string)(p) = string(content)
		return true
	}
	switch {
	case major != MajorBytes:
		return false
	case e.kind == encodesBytes:
		*(*[]byte)(p) = append(make([]byte, 0, len(content)), content...)
		return true
	case e.kind == encodesID && len(content) == 0:
		return true
	}
	return copy(e.array(p), content) == len(content) && len(content) == int(e.size)
}

// elements sets the elements of the slice or of the array at p.
func (e *encoder) elements(b []byte, p unsafe.Pointer, major byte, n, depth int) (rest []byte, ok bool) {
	if major != majorArray || e.kind == encodesArray && n != e.of.Len() {
		return nil, false
	}
	if e.kind == encodesSlice {
		s := reflect.MakeSlice(e.of, n, n)
		reflect.NewAt(e.of, p).Elem().Set(s)
		p = s.UnsafePointer()
	}
	for i := range n {
		if b, ok = e.item.decode(b, unsafe.Add(p, uintptr(i)*e.item.size), depth); !ok {
			return nil, false
		}
	}
	return b, true
}

// fieldsOf sets the fields of the record at p, which come in the order of their keys.
func (e *encoder) fieldsOf(b []byte, p unsafe.Pointer, major byte, n, depth int) (rest []byte, ok bool) {
	if major != MajorMap {
		return nil, false
	}
	next := 0
	for range n {
		for next < len(e.fields) && !hasPrefix(b, e.fields[next].key) {
			next++
		}
		if next == len(e.fields) {
			return nil, false // Unknown, repeated or out of order.
		}
		f := &e.fields[next]
		next++
		if b, ok = f.value.decode(b[len(f.key):], f.in(p), depth); !ok {
			return nil, false
		}
	}
	return b, true
}

// hasPrefix is bytes.HasPrefix for a prefix that mostly is one byte.
func hasPrefix(b, prefix []byte) bool {
	if len(prefix) == 1 {
		return len(b) > 0 && b[0] == prefix[0]
	}
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == string(prefix)
}
