package store

import (
	"bytes"
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// encoderKind is the kind of value that an encoder takes.
type encoderKind uint8

const (
	encodesUint encoderKind = iota
	encodesInt
	encodesBool
	encodesText
	encodesID     // An identifier, or a struct of one.
	encodesBytes  // A slice of bytes.
	encodesDigest // An array of bytes.
	encodesSlice
	encodesArray
	encodesPointer
	encodesRecord
)

const (
	plainNull = 22
	maxFields = 255 // Fields of one record.
)

// encoder encodes the values of one type to the bytes that codec.enc encodes them to. It is
// built once and never changes. Types that it does not cover exactly are left to codec.enc.
type encoder struct {
	kind   encoderKind
	item   *encoder // Encodes elements, or the value behind a pointer.
	fields []encodedField
	sparse bool // All fields are omitted while they are empty.
}

// encodedField is a field of a record.
type encodedField struct {
	key       []byte // Encoded.
	index     int
	omitEmpty bool
	omitZero  bool
	value     *encoder
}

// encoders has the *encoder of every type so far, nil for a type that codec.enc encodes.
var encoders sync.Map //nolint:gochecknoglobals // Follows from the types.

// encoderOf returns the encoder of a type, nil if codec.enc has to encode it.
func encoderOf(t reflect.Type) *encoder {
	if t == nil {
		return nil
	}
	if e, ok := encoders.Load(t); ok {
		return e.(*encoder) //nolint:forcetypeassert // There is no other type.
	}
	e := encoderBuilder{}.build(t)
	encoders.Store(t, e)
	return e
}

// encoderBuilder has the encoders of the types that a type consists of.
type encoderBuilder map[reflect.Type]*encoder

// build returns the encoder of a type, nil if there is none.
func (b encoderBuilder) build(t reflect.Type) *encoder {
	if e := b[t]; e != nil {
		return e // Possibly unfinished: the type contains itself.
	}
	e := new(encoder)
	b[t] = e
	pointer := reflect.PointerTo(t)
	switch {
	case t.Kind() == reflect.Pointer:
		return e.of(encodesPointer, b.build(t.Elem()))
	case pointer.Implements(reflect.TypeFor[cbor.Marshaler]()):
		return nil
	case pointer.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()):
		if !encodesAsID(t) {
			return nil
		}
		e.kind = encodesID
		return e
	}
	switch t.Kind() {
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.kind = encodesUint
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.kind = encodesInt
	case reflect.Bool:
		e.kind = encodesBool
	case reflect.String:
		e.kind = encodesText
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return e.of(encodesSlice, b.build(t.Elem()))
		}
		e.kind = encodesBytes
	case reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 {
			return e.of(encodesArray, b.build(t.Elem()))
		}
		e.kind = encodesDigest
	case reflect.Struct:
		return b.record(e, t)
	default:
		return nil
	}
	return e
}

// of makes e an encoder of items, nil if they have none.
func (e *encoder) of(kind encoderKind, item *encoder) *encoder {
	if e.kind, e.item = kind, item; item == nil {
		return nil
	}
	return e
}

// encodesAsID reports whether the values of a type that marshals itself encode as an
// identifier.
func encodesAsID(t reflect.Type) bool {
	wrapped := t.Kind() == reflect.Struct && t.NumField() == 1 && t.Field(0).Anonymous &&
		t.Field(0).IsExported() && isIDType(t.Field(0).Type)
	if !wrapped && !isIDType(t) {
		return false
	}
	id := reflect.New(t).Elem()
	marshaled := func() ([]byte, error) {
		return id.Addr().Interface().(encoding.BinaryMarshaler).MarshalBinary() //nolint:forcetypeassert // It is one.
	}
	if data, err := marshaled(); err != nil || len(data) > 0 {
		return false
	}
	text := idOf(id)
	for i := range text.Len() {
		text.Index(i).SetUint(uint64(i) + 1)
	}
	data, err := marshaled()
	return err == nil && bytes.Equal(data, text.Bytes())
}

// idOf returns the bytes of an identifier.
func idOf(v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Struct {
		return v.Field(0)
	}
	return v
}

// record makes e the encoder of a struct with numbered fields. It returns nil if there are
// others.
func (b encoderBuilder) record(e *encoder, t reflect.Type) *encoder {
	e.kind, e.sparse = encodesRecord, true
	for i := range t.NumField() {
		of := t.Field(i)
		if of.Tag.Get("cbor") == "-" {
			continue
		}
		f, ok := fieldOf(of)
		if f.value = b.build(of.Type); !ok || f.value == nil {
			return nil
		}
		f.index = i
		e.sparse = e.sparse && f.omitEmpty
		e.fields = append(e.fields, f)
	}
	slices.SortFunc(e.fields, func(x, y encodedField) int { return bytes.Compare(x.key, y.key) })
	for i := range e.fields {
		if i > 0 && bytes.Equal(e.fields[i-1].key, e.fields[i].key) || i == maxFields {
			return nil
		}
	}
	return e
}

// fieldOf returns a field by its tag. It reports false for a field that is not a numbered
// one, or whose type decides whether it is zero.
func fieldOf(of reflect.StructField) (f encodedField, ok bool) {
	name, options, _ := strings.Cut(of.Tag.Get("cbor"), ",")
	number, err := strconv.ParseUint(name, 10, 16)
	if err != nil || of.Anonymous || !of.IsExported() {
		return f, false
	}
	f.key = AppendHead(nil, MajorUint, number)
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "keyasint":
			ok = true
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		default:
			return f, false
		}
	}
	zeroer := reflect.TypeFor[interface{ IsZero() bool }]()
	decides := of.Type.Implements(zeroer) || reflect.PointerTo(of.Type).Implements(zeroer)
	return f, ok && (!f.omitZero || !decides)
}

// append appends the encoding of a value.
func (e *encoder) append(dst []byte, v reflect.Value) []byte {
	switch e.kind {
	case encodesUint:
		return AppendHead(dst, MajorUint, v.Uint())
	case encodesInt:
		return appendNumber(dst, v.Int())
	case encodesBool:
		if v.Bool() {
			return append(dst, majorPlain<<5|plainTrue)
		}
		return append(dst, majorPlain<<5|plainFalse)
	case encodesText:
		s := v.String()
		return append(AppendHead(dst, majorText, uint64(len(s))), s...)
	case encodesID:
		if v.IsZero() {
			return append(dst, MajorBytes<<5)
		}
		return appendDigest(dst, idOf(v))
	case encodesDigest:
		return appendDigest(dst, v)
	case encodesBytes:
		if v.IsNil() {
			return append(dst, majorPlain<<5|plainNull)
		}
		b := v.Bytes()
		return append(AppendHead(dst, MajorBytes, uint64(len(b))), b...)
	case encodesPointer:
		if v.IsNil() {
			return append(dst, majorPlain<<5|plainNull)
		}
		return e.item.append(dst, v.Elem())
	case encodesSlice:
		if v.IsNil() {
			return append(dst, majorPlain<<5|plainNull)
		}
		return e.list(dst, v)
	case encodesArray:
		return e.list(dst, v)
	default:
		return e.record(dst, v)
	}
}

// appendDigest appends an array of bytes.
func appendDigest(dst []byte, v reflect.Value) []byte {
	n := v.Len()
	dst = AppendHead(dst, MajorBytes, uint64(n))
	if v.CanAddr() {
		return append(dst, v.Bytes()...)
	}
	for i := range n {
		dst = append(dst, byte(v.Index(i).Uint()))
	}
	return dst
}

// list appends the elements of a slice or of an array.
func (e *encoder) list(dst []byte, v reflect.Value) []byte {
	n := v.Len()
	dst = AppendHead(dst, majorArray, uint64(n))
	for i := range n {
		dst = e.item.append(dst, v.Index(i))
	}
	return dst
}

// record appends a record.
func (e *encoder) record(dst []byte, v reflect.Value) []byte {
	const small = 24 // Fewer fields have a head of one byte.
	start, n := len(dst), 0
	dst = append(dst, 0)
	for i := range e.fields {
		f := &e.fields[i]
		value := v.Field(f.index)
		if f.omitEmpty && f.value.empty(value) || f.omitZero && value.IsZero() {
			continue
		}
		dst = f.value.append(append(dst, f.key...), value)
		n++
	}
	if n < small {
		dst[start] = MajorMap<<5 | byte(n)
		return dst
	}
	return slices.Replace(dst, start, start+1, MajorMap<<5|24, byte(n))
}

// empty reports whether a field with a value is omitted if it is empty.
func (e *encoder) empty(v reflect.Value) bool {
	switch e.kind {
	case encodesUint:
		return v.Uint() == 0
	case encodesInt:
		return v.Int() == 0
	case encodesBool:
		return !v.Bool()
	case encodesID:
		return v.IsZero()
	case encodesText, encodesBytes, encodesDigest, encodesSlice, encodesArray:
		return v.Len() == 0
	case encodesPointer:
		return v.IsNil()
	case encodesRecord:
	}
	if !e.sparse {
		return false
	}
	for i := range e.fields {
		if f := &e.fields[i]; !f.value.empty(v.Field(f.index)) {
			return false
		}
	}
	return true
}
