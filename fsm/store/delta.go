package store

import (
	"bytes"
	"encoding/binary"
	"math"
)

// A packed record is its difference from another record of the same kind, the
// base. Both are CBOR maps with small numbers as keys, in order, as all records
// are. The encoding of a difference is
//
//	number of fields of the record (uvarint), then for each field that differs
//	a tag (uvarint): distance of its key from the key before, << 3 | kind
//	0 at the end
//
// The constants below are the kinds, with the content that follows the tag. A
// difference exists in memory alone: snapshots and hashes do not contain it.
const (
	fieldRemoved = 1 // Nothing: only the base has the field.
	fieldItem    = 2 // The item.
	fieldNumber  = 3 // The distance from the number of the base, zigzag.
	fieldMap     = 4 // The difference of two maps.
	fieldID      = 5 // The number of an identifier that occurred before (uvarint).
	fieldEntry   = 6 // The number of a dictionary entry (uvarint).
)

// The parts of CBOR that records use.
const (
	MajorUint  = 0
	majorNint  = 1
	MajorBytes = 2
	majorText  = 3
	majorArray = 4
	MajorMap   = 5
	majorPlain = 7

	plainFalse = 20
	plainTrue  = 21

	idBytes  = 16
	idItem   = 1 + idBytes
	idHead   = MajorBytes<<5 | idBytes
	lateBase = 1 << 40 // Numbers from here on are instants, which move together.
	knownIDs = 6
	maxDepth = maxNesting
)

// Head reads the head of the first item of b: its major type, its number, and
// the bytes of the head, 0 if b is cut or of a kind that records do not use.
func Head(b []byte) (major byte, n uint64, size int) {
	if len(b) == 0 {
		return 0, 0, 0
	}
	major, low := b[0]>>5, b[0]&31
	switch {
	case low < 24:
		return major, uint64(low), 1
	case low == 24 && len(b) >= 2:
		return major, uint64(b[1]), 2
	case low == 25 && len(b) >= 3:
		return major, uint64(binary.BigEndian.Uint16(b[1:])), 3
	case low == 26 && len(b) >= 5:
		return major, uint64(binary.BigEndian.Uint32(b[1:])), 5
	case low == 27 && len(b) >= 9:
		return major, binary.BigEndian.Uint64(b[1:]), 9
	}
	return 0, 0, 0
}

// AppendHead appends the shortest head.
func AppendHead(dst []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

// itemSize returns the bytes of the first item of b, 0 if b is cut.
func itemSize(b []byte, depth int) int {
	if len(b) > 0 && b[0]&31 < 24 && b[0] < MajorBytes<<5 {
		return 1 // A small number, as most are.
	}
	major, n, size := Head(b)
	if size == 0 || depth == 0 {
		return 0
	}
	switch major {
	case MajorUint, majorNint:
		return size
	case MajorBytes, majorText:
		if n > uint64(len(b)-size) {
			return 0
		}
		return size + int(n)
	case MajorMap:
		n *= 2
		fallthrough
	case majorArray:
		if n > uint64(len(b)) {
			return 0
		}
		for range n {
			item := itemSize(b[size:], depth-1)
			if item == 0 {
				return 0
			}
			size += item
		}
		return size
	case majorPlain:
		if b[0]&31 >= 24 {
			return 0
		}
		return size
	}
	return 0
}

// Fields iterates over the fields of a record.
type Fields struct {
	Rest []byte
	left uint64
	Bad  bool // It is not a record, or it is cut.
}

// FieldsOf returns the fields of the map that b starts with, and their number.
func FieldsOf(b []byte) (Fields, uint64) {
	major, n, size := Head(b)
	if size == 0 || major != MajorMap {
		return Fields{Bad: true}, 0
	}
	return Fields{Rest: b[size:], left: n}, n
}

// Next returns the next field. It reports false at the end and if f is bad.
func (f *Fields) Next() (key uint64, item []byte, ok bool) {
	if f.left == 0 || f.Bad {
		return 0, nil, false
	}
	key, size := fieldKey(f.Rest)
	n := 0
	if size > 0 {
		n = itemSize(f.Rest[size:], maxDepth)
	}
	if n == 0 {
		f.Bad = true
		return 0, nil, false
	}
	item = f.Rest[size : size+n]
	f.Rest = f.Rest[size+n:]
	f.left--
	return key, item, true
}

// fieldKey returns the key that b starts with and its size, 0 for none.
func fieldKey(b []byte) (key uint64, size int) {
	if len(b) > 0 && b[0] < 24 { // As nearly all are.
		return uint64(b[0]), 1
	}
	major, key, size := Head(b)
	if major != MajorUint {
		return 0, 0
	}
	return key, size
}

// baseFields iterates over the fields of a base, or of a record that is not
// split.
type baseFields struct {
	parts base
	rest  Fields
	apart bool
}

func baseFieldsOf(b []byte) (old baseFields) {
	old.rest, _ = FieldsOf(b)
	return old
}

// next is like Next of Fields.
func (o *baseFields) next() (key uint64, item []byte, ok bool) {
	if !o.apart {
		return o.rest.Next()
	}
	if len(o.parts) == 0 {
		return 0, nil, false
	}
	first := &o.parts[0]
	o.parts = o.parts[1:]
	return first.key, first.item, true
}

// Number returns the number that an item is.
func Number(item []byte) (int64, bool) {
	major, n, size := Head(item)
	if size == 0 || major > majorNint || n > 1<<63-1 {
		return 0, false
	}
	if major == majorNint {
		return -1 - int64(n), true
	}
	return int64(n), true
}

func appendNumber(dst []byte, n int64) []byte {
	if n < 0 {
		return AppendHead(dst, majorNint, uint64(-1-n))
	}
	return AppendHead(dst, MajorUint, uint64(n))
}

// delta is the state that writing and reading a difference share: the part of the
// record so far that they remember.
type delta struct {
	dictionary *Dictionary
	drift      int64 // The distance of the last instant from that of the base.
	ids        [knownIDs][idBytes]byte
	known      int
}

// begin registers the identifiers that key consists of.
func (d *delta) begin(key []byte) {
	for len(key) >= idBytes {
		d.know(key[:idBytes])
		key = key[idBytes:]
	}
}

func (d *delta) know(id []byte) {
	if d.known < knownIDs {
		copy(d.ids[d.known][:], id)
		d.known++
	}
}

// expected returns the likely value of a number: instants move together.
func (d *delta) expected(was int64) int64 {
	if was >= lateBase {
		return was + d.drift
	}
	return was
}

func (d *delta) moved(was, is int64) {
	if was >= lateBase {
		d.drift = is - was
	}
}

// diff appends the difference between an old map and record. Often has a bit for
// each field whose items many records share. It reports false if one of them is
// not a record.
func (d *delta) diff(dst []byte, old baseFields, record []byte, often uint64) ([]byte, bool) {
	now, n := FieldsOf(record)
	dst = binary.AppendUvarint(dst, n)
	last := int64(-1)
	whole := true
	was, before, more := old.next()
	key, item, ok := now.Next()
	for whole && (ok || more) {
		if more && (!ok || was < key) {
			dst = appendTag(dst, &last, was, fieldRemoved)
			was, before, more = old.next()
			continue
		}
		var same []byte
		if more && was == key {
			same = before
			was, before, more = old.next()
		}
		if !bytes.Equal(same, item) {
			dst, whole = d.field(dst, &last, key, same, item, often)
		}
		key, item, ok = now.Next()
	}
	return append(dst, 0), whole && !old.rest.Bad && !now.Bad
}

func appendTag(dst []byte, last *int64, key uint64, what byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(int64(key)-*last)<<3|uint64(what))
	*last = int64(key)
	return dst
}

// field appends a field that differs from was, nil for a new field.
func (d *delta) field(dst []byte, last *int64, key uint64, was, item []byte, often uint64) ([]byte, bool) {
	if before, ok := Number(was); ok {
		if now, ok := Number(item); ok {
			dst = appendTag(dst, last, key, fieldNumber)
			dst = binary.AppendVarint(dst, now-d.expected(before))
			d.moved(before, now)
			return dst, true
		}
	}
	often = often >> min(key, 63) & 1
	if IsMap(was) && IsMap(item) {
		return d.diff(appendTag(dst, last, key, fieldMap), baseFieldsOf(was), item, -often)
	}
	if IsID(item) {
		for i := range d.known {
			if bytes.Equal(d.ids[i][:], item[1:]) {
				return binary.AppendUvarint(appendTag(dst, last, key, fieldID), uint64(i)), true
			}
		}
		d.know(item[1:])
	}
	if often != 0 && len(item) >= minEntry {
		if id, ok := d.dictionary.Number(item); ok {
			return binary.AppendUvarint(appendTag(dst, last, key, fieldEntry), id), true
		}
	}
	return append(appendTag(dst, last, key, fieldItem), item...), true
}

// ID returns the identifier that an item is, zero for none.
func ID(item []byte) (id [idBytes]byte) {
	if IsID(item) {
		copy(id[:], item[1:])
	}
	return id
}

// IsMap reports whether an item is a map.
func IsMap(item []byte) bool { return len(item) > 0 && item[0]>>5 == MajorMap }

// IsID reports whether an item is an identifier.
func IsID(item []byte) bool { return len(item) == idItem && item[0] == idHead }

// merge appends the record that diff was given, and returns the bytes after the
// difference.
func (d *delta) merge(dst []byte, old baseFields, diff []byte) (record, rest []byte) {
	n, diff := takeUvarint(diff)
	dst = AppendHead(dst, MajorMap, n)
	was, before, more := old.next()
	key := uint64(math.MaxUint64) // One before 0.
	for {
		var tag uint64
		if tag, diff = takeUvarint(diff); tag == 0 {
			break
		}
		key += tag >> 3
		for more && was < key {
			dst = append(AppendHead(dst, MajorUint, was), before...)
			was, before, more = old.next()
		}
		var same []byte
		if more && was == key {
			same = before
			was, before, more = old.next()
		}
		if tag&7 != fieldRemoved {
			dst, diff = d.value(AppendHead(dst, MajorUint, key), same, diff, tag&7)
		}
	}
	for more {
		dst = append(AppendHead(dst, MajorUint, was), before...)
		was, before, more = old.next()
	}
	return dst, diff
}

// value appends one item.
func (d *delta) value(dst, was, diff []byte, what uint64) (record, rest []byte) {
	switch what {
	case fieldNumber:
		by, size := binary.Varint(diff)
		before, _ := Number(was)
		now := d.expected(before) + by
		d.moved(before, now)
		return appendNumber(dst, now), diff[size:]
	case fieldMap:
		return d.merge(dst, baseFieldsOf(was), diff)
	case fieldID:
		i, rest := takeUvarint(diff)
		return append(append(dst, idHead), d.ids[i][:]...), rest
	}
	var item []byte
	if what == fieldEntry {
		i, rest := takeUvarint(diff)
		item, diff = d.dictionary.At(i), rest
	} else {
		n := itemSize(diff, maxDepth)
		item, diff = diff[:n], diff[n:]
	}
	if IsID(item) {
		d.know(item[1:])
	}
	return append(dst, item...), diff
}

// AppendDiff appends the difference between an old map and record. W has the
// entries that many records share.
func AppendDiff(dst []byte, w *Dictionary, old, record []byte) []byte {
	d := delta{dictionary: w}
	dst, _ = d.diff(dst, baseFieldsOf(old), record, 0)
	return dst
}

// ApplyDiff appends the record that AppendDiff was given, and returns the bytes
// after the difference.
func ApplyDiff(dst []byte, w *Dictionary, old, diff []byte) (record, rest []byte) {
	d := delta{dictionary: w}
	return d.merge(dst, baseFieldsOf(old), diff)
}

// takeUvarint returns the number that b starts with and the bytes after it.
func takeUvarint(b []byte) (n uint64, rest []byte) {
	n, size := binary.Uvarint(b)
	return n, b[size:]
}
