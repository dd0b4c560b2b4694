package store

import (
	"encoding"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

// itemKind is the kind of an encoded item.
type itemKind uint8

const (
	itemOther itemKind = iota // Not covered by schemas: left to the decoder.
	itemUint                  // A number from 0 to limit.
	itemInt                   // A number from -limit-1 to limit.
	itemBool
	itemText
	itemBytes  // As many bytes as limit, any number for 0.
	itemID     // An identifier, or no bytes for none.
	itemList   // Items of one schema.
	itemRecord // A map from the numbers of fields to items.
)

// Schema describes the encoding of a Go type. An encoding that a schema accepts
// decodes, and encodes to the same bytes again: its hash is that of the value. An
// encoding that it does not accept may still be valid; the decoder decides.
type Schema struct {
	kind     itemKind
	nonzero  bool // Zero values are omitted, so they never occur.
	limit    uint64
	items    *Schema
	fields   []*Schema // By number; nil if there is none.
	required uint64    // The fields that are never omitted, a bit for each.
}

// maxRequired bounds the numbers of fields that are never omitted.
const maxRequired = 64

// SchemaOf returns the schema of V.
func SchemaOf[V any]() *Schema { return newSchema(reflect.TypeFor[V](), false) }

// newSchema returns the schema of a type. With filled, it is the type of a field
// whose zero value is omitted.
func newSchema(t reflect.Type, filled bool) *Schema {
	s := &Schema{nonzero: filled}
	marshals := t.Implements(reflect.TypeFor[encoding.BinaryMarshaler]())
	switch t.Kind() {
	case reflect.Struct:
		if marshals {
			if t.NumField() == 1 && t.Field(0).Anonymous && isIDType(t.Field(0).Type) {
				s.kind = itemID
			}
			return s
		}
		s.record(t)
	case reflect.Array:
		switch {
		case isIDType(t):
			s.kind = itemID
		case !filled && t.Elem().Kind() == reflect.Uint8:
			s.kind, s.limit = itemBytes, uint64(t.Len())
		}
	case reflect.Pointer: // Nil is omitted: a value may be zero.
		if filled && t.Elem().Kind() == reflect.Struct {
			return newSchema(t.Elem(), false)
		}
	case reflect.Slice:
		switch {
		case !filled: // Nil has another encoding.
		case t.Elem().Kind() == reflect.Uint8:
			s.kind = itemBytes
		default:
			s.kind, s.items = itemList, newSchema(t.Elem(), false)
		}
	case reflect.String:
		s.kind = itemText
	case reflect.Bool:
		s.kind = itemBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		s.kind, s.limit = itemInt, 1<<(t.Bits()-1)-1
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		s.kind, s.limit = itemUint, 1<<t.Bits()-1
	default: // No record has one.
	}
	if marshals && s.kind != itemID {
		s.kind = itemOther
	}
	return s
}

// isIDType reports whether t is an identifier: 16 bytes that encode themselves,
// the zero value as none.
func isIDType(t reflect.Type) bool {
	return t.Kind() == reflect.Array && t.Len() == idBytes && t.Elem().Kind() == reflect.Uint8 &&
		t.Implements(reflect.TypeFor[encoding.BinaryMarshaler]())
}

// record makes s the schema of a struct with numbered fields.
func (s *Schema) record(t reflect.Type) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("cbor"), ",")
		if name == "-" {
			continue
		}
		key, err := strconv.ParseUint(name, 10, 7)
		omits := strings.Contains(options, "omit")
		if err != nil || !strings.Contains(options, "keyasint") || !omits && key >= maxRequired {
			return // It stays itemOther.
		}
		for uint64(len(s.fields)) <= key {
			s.fields = append(s.fields, nil)
		}
		s.fields[key] = newSchema(f.Type, omits)
		if !omits {
			s.required |= 1 << key
		}
	}
	if s.required == 0 || !s.nonzero {
		s.kind = itemRecord
	}
}

// LastField returns the highest field number of a record, -1 for another schema.
func (s *Schema) LastField() int {
	if s.kind != itemRecord {
		return -1
	}
	return len(s.fields) - 1
}

// Size returns the bytes of the first item of b, 0 if s does not accept it.
func (s *Schema) Size(b []byte) int {
	if len(b) > 0 && b[0] < 24 && (s.kind == itemInt || s.kind == itemUint) {
		return accepted(1, b[0] != 0 || !s.nonzero) // A small number, as most are.
	}
	major, n, size := Head(b)
	if size == 0 || size != headSize(n) || s.nonzero && n == 0 && major != majorNint {
		return 0
	}
	switch s.kind {
	case itemUint:
		return accepted(size, major == MajorUint && n <= s.limit)
	case itemInt:
		return accepted(size, major <= majorNint && n <= s.limit)
	case itemBool:
		return accepted(size, major == majorPlain && (n == plainTrue || n == plainFalse && !s.nonzero))
	case itemText, itemBytes, itemID:
		if n > uint64(len(b)-size) {
			return 0
		}
		return accepted(size+int(n), s.accepts(major, b[size:size+int(n)]))
	case itemList:
		if major != majorArray || n > maxElements {
			return 0
		}
		return s.list(b, n, size)
	case itemRecord:
		f := s.FieldsOf(b)
		for _, _, ok := f.Next(); ok; _, _, ok = f.Next() {
		}
		return accepted(len(b)-len(f.rest), f.complete())
	case itemOther:
	}
	return 0
}

// accepted returns size if is holds, 0 otherwise.
func accepted(size int, is bool) int {
	if is {
		return size
	}
	return 0
}

// accepts reports whether s accepts a byte string.
func (s *Schema) accepts(major byte, value []byte) bool {
	switch s.kind {
	case itemText:
		return major == majorText && utf8.Valid(value)
	case itemID:
		return major == MajorBytes && (len(value) == 0 || len(value) == idBytes && [idBytes]byte(value) != [idBytes]byte{})
	default:
		return major == MajorBytes && (s.limit == 0 || s.limit == uint64(len(value)))
	}
}

// list returns the bytes of a list of n items whose head has size bytes.
func (s *Schema) list(b []byte, n uint64, size int) int {
	for range n {
		item := s.items.Size(b[size:])
		if item == 0 {
			return 0
		}
		size += item
	}
	return size
}

// headSize returns the bytes of the shortest head with n.
func headSize(n uint64) int {
	switch {
	case n < 24:
		return 1
	case n < 1<<8:
		return 2
	case n < 1<<16:
		return 3
	case n < 1<<32:
		return 5
	}
	return 9
}

// SchemaFields iterates over the fields of a record like Fields, and accepts only
// fields of its schema, each once and in order.
type SchemaFields struct {
	schema *Schema
	rest   []byte
	left   uint64
	seen   uint64 // The fields so far below maxRequired, a bit for each.
	next   uint64 // The lowest number that may follow.
	bad    bool
}

// FieldsOf returns the fields of the map that b starts with.
func (s *Schema) FieldsOf(b []byte) SchemaFields {
	major, n, size := Head(b)
	return SchemaFields{schema: s, rest: b[size:], left: n, bad: size == 0 || major != MajorMap || size != headSize(n)}
}

// Next returns the next field. It reports false at the end and after a field
// that the schema does not accept.
func (f *SchemaFields) Next() (key uint64, item []byte, ok bool) {
	if f.left == 0 || f.bad {
		return 0, nil, false
	}
	key, size := fieldKey(f.rest)
	f.bad = true
	if size == 0 || size != headSize(key) || key >= uint64(len(f.schema.fields)) || key < f.next {
		return 0, nil, false
	}
	of := f.schema.fields[key]
	if of == nil {
		return 0, nil, false
	}
	n := of.Size(f.rest[size:])
	if n == 0 {
		return 0, nil, false
	}
	item = f.rest[size : size+n]
	f.rest, f.left, f.next, f.bad = f.rest[size+n:], f.left-1, key+1, false
	if key < maxRequired {
		f.seen |= 1 << key
	}
	return key, item, true
}

// complete reports whether the schema accepted the whole record.
func (f *SchemaFields) complete() bool {
	return !f.bad && f.left == 0 && f.seen&f.schema.required == f.schema.required
}

// Complete reports whether the schema accepted the whole record and nothing
// follows it.
func (f *SchemaFields) Complete() bool { return f.complete() && len(f.rest) == 0 }
