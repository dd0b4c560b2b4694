package store

import (
	"bytes"
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

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
// It reads and writes values where they lie in memory, because each replica encodes each
// record, and with package reflect that takes half as long again.
type encoder struct {
	kind   encoderKind
	of     reflect.Type
	size   uintptr  // Bytes of a value in memory.
	item   *encoder // Encodes elements, or the value behind a pointer.
	fields []encodedField
	sparse bool // All fields are omitted while they are empty.
	whole  bool // All fields of the struct are encoded.
}

// encodedField is a field of a record.
type encodedField struct {
	key       []byte // Encoded.
	offset    uintptr
	omitEmpty bool
	omitZero  bool
	value     *encoder
}

// in returns where the field of a record lies.
func (f *encodedField) in(record unsafe.Pointer) unsafe.Pointer { return unsafe.Add(record, f.offset) }

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
	e := &encoder{of: t, size: t.Size()}
	b[t] = e
	pointer := reflect.PointerTo(t)
	switch {
	case t.Kind() == reflect.Pointer:
		return e.items(encodesPointer, b.build(t.Elem()))
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
			return e.items(encodesSlice, b.build(t.Elem()))
		}
		e.kind = encodesBytes
	case reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 {
			return e.items(encodesArray, b.build(t.Elem()))
		}
		e.kind = encodesDigest
	case reflect.Struct:
		return b.record(e, t)
	default:
		return nil
	}
	return e
}

// items makes e an encoder of items, nil if they have none.
func (e *encoder) items(kind encoderKind, item *encoder) *encoder {
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
	e.kind, e.sparse, e.whole = encodesRecord, true, true
	for i := range t.NumField() {
		of := t.Field(i)
		if of.Tag.Get("cbor") == "-" {
			e.whole = false
			continue
		}
		f, ok := fieldOf(of)
		if f.value = b.build(of.Type); !ok || f.value == nil || f.omitZero && !f.value.covers() {
			return nil
		}
		f.offset = of.Offset
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

// covers reports whether zero sees all of a value.
func (e *encoder) covers() bool {
	if e.kind == encodesArray {
		return e.item.covers()
	}
	for i := range e.fields {
		if !e.fields[i].value.covers() {
			return false
		}
	}
	return e.kind != encodesRecord || e.whole
}

// pointerTo returns where a value lies: what it points at, its place in the interface, or a
// copy of it. It is only read.
func pointerTo(value any) (*encoder, unsafe.Pointer) {
	v := reflect.ValueOf(value)
	if !v.IsValid() {
		return nil, nil
	}
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		return encoderOf(v.Type().Elem()), v.UnsafePointer()
	}
	e := encoderOf(v.Type())
	if e == nil {
		return nil, nil
	}
	if v.Kind() == reflect.Struct && e.size > unsafe.Sizeof(uintptr(0)) {
		return e, (*interfaceHeader)(unsafe.Pointer(&value)).data // Larger than a pointer, so it lies behind one.
	}
	at := reflect.New(v.Type())
	at.Elem().Set(v)
	return e, at.UnsafePointer()
}

// interfaceHeader is an interface in memory.
type interfaceHeader struct {
	_    unsafe.Pointer // The type.
	data unsafe.Pointer
}

// sliceHeader is a slice in memory.
type sliceHeader struct {
	data   unsafe.Pointer
	length int
	_      int // The capacity.
}

// uint returns the number at p.
func (e *encoder) uint(p unsafe.Pointer) uint64 {
	switch e.size {
	case 1:
		return uint64(*(*uint8)(p))
	case 2:
		return uint64(*(*uint16)(p))
	case 4:
		return uint64(*(*uint32)(p))
	default:
		return *(*uint64)(p)
	}
}

// int returns the number at p, which has a sign.
func (e *encoder) int(p unsafe.Pointer) int64 {
	unused := 64 - 8*e.size
	return int64(e.uint(p)<<unused) >> unused
}

// array returns the array of bytes at p.
func (e *encoder) array(p unsafe.Pointer) []byte { return unsafe.Slice((*byte)(p), e.size) }

// append appends the encoding of the value at p.
func (e *encoder) append(dst []byte, p unsafe.Pointer) []byte {
	switch e.kind {
	case encodesUint:
		return AppendHead(dst, MajorUint, e.uint(p))
	case encodesInt:
		return appendNumber(dst, e.int(p))
	case encodesBool:
		if *(*bool)(p) {
			return append(dst, majorPlain<<5|plainTrue)
		}
		return append(dst, majorPlain<<5|plainFalse)
	case encodesText:
		s := *(*string)(p)
		return append(AppendHead(dst, majorText, uint64(len(s))), s...)
	case encodesID:
		if e.zero(p) {
			return append(dst, MajorBytes<<5)
		}
		return appendBytes(dst, e.array(p))
	case encodesDigest:
		return appendBytes(dst, e.array(p))
	case encodesBytes:
		b := *(*[]byte)(p)
		if b == nil {
			return append(dst, majorPlain<<5|plainNull)
		}
		return appendBytes(dst, b)
	case encodesPointer:
		to := *(*unsafe.Pointer)(p)
		if to == nil {
			return append(dst, majorPlain<<5|plainNull)
		}
		return e.item.append(dst, to)
	case encodesSlice:
		s := (*sliceHeader)(p)
		if s.data == nil {
			return append(dst, majorPlain<<5|plainNull)
		}
		return e.list(dst, s.data, s.length)
	case encodesArray:
		return e.list(dst, p, e.of.Len())
	default:
		return e.record(dst, p)
	}
}

// appendBytes appends bytes.
func appendBytes(dst, b []byte) []byte {
	return append(AppendHead(dst, MajorBytes, uint64(len(b))), b...)
}

// list appends n elements, the first of which lies at p.
func (e *encoder) list(dst []byte, p unsafe.Pointer, n int) []byte {
	dst = AppendHead(dst, majorArray, uint64(n))
	for i := range n {
		dst = e.item.append(dst, unsafe.Add(p, uintptr(i)*e.item.size))
	}
	return dst
}

// record appends a record.
func (e *encoder) record(dst []byte, p unsafe.Pointer) []byte {
	const small = 24 // Fewer fields have a head of one byte.
	start, n := len(dst), 0
	dst = append(dst, 0)
	for i := range e.fields {
		f := &e.fields[i]
		value := f.in(p)
		if f.omitEmpty && f.value.empty(value) || f.omitZero && f.value.zero(value) {
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

// empty reports whether a field with the value at p is omitted if it is empty.
func (e *encoder) empty(p unsafe.Pointer) bool {
	switch e.kind {
	case encodesUint, encodesInt, encodesBool, encodesID, encodesPointer:
		return e.zero(p)
	case encodesText:
		return *(*string)(p) == ""
	case encodesBytes, encodesSlice:
		return (*sliceHeader)(p).length == 0
	case encodesDigest, encodesArray:
		return e.of.Len() == 0
	case encodesRecord:
	}
	if !e.sparse {
		return false
	}
	for i := range e.fields {
		if f := &e.fields[i]; !f.value.empty(f.in(p)) {
			return false
		}
	}
	return true
}

// zero reports whether the value at p is the zero value of its type, as far as covers says
// that it sees all of it.
func (e *encoder) zero(p unsafe.Pointer) bool {
	switch e.kind {
	case encodesUint, encodesInt, encodesBool:
		return e.uint(p) == 0
	case encodesText:
		return *(*string)(p) == ""
	case encodesPointer, encodesBytes, encodesSlice:
		return *(*unsafe.Pointer)(p) == nil
	case encodesID:
		return *(*[idBytes]byte)(p) == [idBytes]byte{}
	case encodesDigest:
		for _, b := range e.array(p) {
			if b != 0 {
				return false
			}
		}
		return true
	case encodesArray:
		for i := range e.of.Len() {
			if !e.item.zero(unsafe.Add(p, uintptr(i)*e.item.size)) {
				return false
			}
		}
		return true
	default:
		for i := range e.fields {
			if f := &e.fields[i]; !f.value.zero(f.in(p)) {
				return false
			}
		}
		return true
	}
}
