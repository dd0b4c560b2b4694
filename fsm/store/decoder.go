package store

import (
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// maxPlanned is how deep items may lie that a plan decodes: below the limit of the codec,
// which decodes the others or refuses them.
const maxPlanned = maxNesting - 1

// decode sets what v points at to the value that data encodes. The codec decodes other forms
// than that of the plan of its type, and says what is an error.
func decode(mode cbor.DecMode, data []byte, v any) error {
	value := reflect.ValueOf(v).Elem()
	e := encoderOf(value.Type())
	if e == nil || !value.IsZero() {
		return mode.Unmarshal(data, v)
	}
	if rest, ok := e.decode(data, value, maxPlanned); ok && len(rest) == 0 {
		return nil
	}
	value.SetZero()
	return mode.Unmarshal(data, v)
}

// MustDecode returns the record that MustEncode encoded.
func MustDecode[V any](data []byte) *V {
	v := new(V)
	if err := decode(codec.dec, data, v); err != nil {
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
	whole := new(V)
	if err := decode(codec.dec, data, whole); err != nil {
		return fmt.Errorf("decode %T: %w", whole, err)
	}
	*v = *whole
	return nil
}

// decode sets v, which is zero, to the first item of b, and returns what follows. It reports
// false where the codec has to decide. The value shares no memory with b.
func (e *encoder) decode(b []byte, v reflect.Value, depth int) (rest []byte, ok bool) {
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
		to := reflect.New(v.Type().Elem())
		if rest, ok = e.item.decode(b, to.Elem(), depth); ok {
			v.Set(to)
		}
		return rest, ok
	case encodesUint:
		if major != MajorUint || v.OverflowUint(n) {
			return nil, false
		}
		v.SetUint(n)
		return b[size:], true
	case encodesInt:
		return b[size:], setInt(v, major, n)
	case encodesBool:
		v.SetBool(n == plainTrue)
		return b[size:], size == 1 && major == majorPlain && (n == plainTrue || n == plainFalse)
	case encodesSlice, encodesArray, encodesRecord:
		if depth == 0 || n > maxElements || n > uint64(len(b)) {
			return nil, false
		}
		if e.kind == encodesRecord {
			return e.fieldsOf(b[size:], v, major, int(n), depth-1)
		}
		return e.items(b[size:], v, major, int(n), depth-1)
	default:
		if n > uint64(len(b)-size) {
			return nil, false
		}
		text := b[size:][:n]
		return b[size+len(text):], e.setBytes(v, major, text)
	}
}

// setInt sets v to a number, if that fits.
func setInt(v reflect.Value, major byte, n uint64) bool {
	i := int64(n)
	if i < 0 || major > majorNint {
		return false
	}
	if major == majorNint {
		i = -1 - i
	}
	if v.OverflowInt(i) {
		return false
	}
	v.SetInt(i)
	return true
}

// setBytes sets v to the content of a text or of bytes.
func (e *encoder) setBytes(v reflect.Value, major byte, content []byte) bool {
	if e.kind == encodesText {
		if major != majorText || !utf8.Valid(content) {
			return false
		}
		v.SetString(string(content))
		return true
	}
	switch {
	case major != MajorBytes:
		return false
	case e.kind == encodesBytes:
		v.Set(reflect.MakeSlice(v.Type(), len(content), len(content)))
		copy(v.Bytes(), content)
		return true
	case e.kind == encodesID:
		if len(content) == 0 {
			return true
		}
		v = idOf(v)
	}
	if len(content) != v.Len() {
		return false
	}
	copy(v.Bytes(), content)
	return true
}

// items sets the elements of v, a slice or an array.
func (e *encoder) items(b []byte, v reflect.Value, major byte, n, depth int) (rest []byte, ok bool) {
	if major != majorArray || e.kind == encodesArray && n != v.Len() {
		return nil, false
	}
	if e.kind == encodesSlice {
		v.Set(reflect.MakeSlice(v.Type(), n, n))
	}
	for i := range n {
		if b, ok = e.item.decode(b, v.Index(i), depth); !ok {
			return nil, false
		}
	}
	return b, true
}

// fieldsOf sets the fields of v, a record, which come in the order of their keys.
func (e *encoder) fieldsOf(b []byte, v reflect.Value, major byte, n, depth int) (rest []byte, ok bool) {
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
		if b, ok = f.value.decode(b[len(f.key):], v.Field(f.index), depth); !ok {
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
