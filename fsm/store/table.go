package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
)

// Tables of any kind are interfaces, because Go compiles all methods of an instantiated
// type into every package that can reach the type through a struct. With structs
// here, each package that imports package fsm compiled 7,000 functions.

// Table is an ordered copy-on-write map. Only one goroutine writes to it and
// freezes it.
type Table[K, V any] interface {
	// Get returns the value at k.
	Get(k K) (V, bool)
	// Set stores v at k.
	Set(k K, v V)
	// Remove removes the row at k, if there is one.
	Remove(k K)
	// Len returns the number of rows.
	Len() int
	// All yields every row by key. The table must not change meanwhile.
	All() iter.Seq2[K, V]
	// From yields the rows from k on, by key.
	From(k K) iter.Seq2[K, V]
	// Descend yields the rows from k down.
	Descend(k K) iter.Seq2[K, V]
	// Frozen returns the current content, which never changes and may be read by any
	// goroutine. It is the same one until something changes.
	Frozen() Table[K, V]
}

// Freeze has t refer to the current content of the table that it refers to.
func Freeze[T interface{ Frozen() T }](t *T) { *t = (*t).Frozen() }

// table implements Table.
type table[K, V any] struct {
	rows   *tree[K, V]
	frozen *table[K, V] // Nil once rows has changed.
}

// NewTable returns an empty table in the order of compare.
func NewTable[K, V any](compare func(a, b K) int) Table[K, V] { return newTable[K, V](compare) }

func newTable[K, V any](compare func(a, b K) int) *table[K, V] {
	return &table[K, V]{rows: newTree[K, V](compare)}
}

func (t *table[K, V]) Get(k K) (V, bool) { return t.rows.get(k) }

func (t *table[K, V]) Set(k K, v V) {
	t.frozen = nil
	t.rows.set(k, v)
}

func (t *table[K, V]) Remove(k K) {
	t.frozen = nil
	t.rows.remove(k)
}

func (t *table[K, V]) Len() int { return t.rows.rows }

func (t *table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.rows.ascend(nil, yield) }
}

func (t *table[K, V]) From(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.rows.ascend(&k, yield) }
}

func (t *table[K, V]) Descend(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.rows.descend(t.rows.root, &k, yield) }
}

func (t *table[K, V]) Frozen() Table[K, V] { return t.freeze() }

func (t *table[K, V]) freeze() *table[K, V] {
	if t.frozen == nil {
		t.frozen = &table[K, V]{rows: t.rows.share()}
		t.frozen.frozen = t.frozen
	}
	return t.frozen
}

// Records is a table of immutable records with the sum of their hashes. To
// change a record, put a changed copy. Cold records are stored packed: each read
// decodes the record.
type Records[K, V any] interface {
	Stored

	// Len returns the number of records.
	Len() int
	// Get returns the record at k.
	Get(k K) (*V, bool)
	// GetHot returns the record at k unless it is cold.
	GetHot(k K) (*V, bool)
	// Peek returns the record at k, or the encoding of a cold one, in buffer.
	Peek(k K, buffer []byte) (v *V, encoded []byte, ok bool)
	// Has reports whether there is a record at k.
	Has(k K) bool
	// Put stores v and returns the record it replaces, nil for none.
	Put(v *V) *V
	// PutEncoded is Put for a caller that has the encoding of v. The caller may reuse it.
	PutEncoded(v *V, encoded []byte) *V
	// Drop removes the record at k and returns it, nil for none.
	Drop(k K) *V
	// Forget removes a record that is not cold and leaves its hash in the sum: it is kept
	// elsewhere.
	Forget(k K)
	// All yields every record with its key, by key.
	All() iter.Seq2[K, *V]
	// From yields the records from k on, by key.
	From(k K) iter.Seq2[K, *V]
	// Descend yields the records that are not cold from k down.
	Descend(k K) iter.Seq2[K, *V]
	// DescendCold yields the keys of the cold records from k down to low.
	DescendCold(k, low K) iter.Seq[K]
	// Hot yields the records that are not cold.
	Hot() iter.Seq[*V]
	// Values yields every record by key.
	Values() iter.Seq[*V]
	// EachFrom yields the encoding of every record from k on, by key. It is valid
	// only during the call.
	EachFrom(k K, yield func(k K, encoded []byte) bool)
	// Scan yields every record from a key on, or all, by key: v, or the key and the
	// packed form of a cold record, which are valid only during the call.
	Scan(from *K, yield func(k K, v *V, key, packed []byte) bool)
	// ColdLen returns the number of cold records.
	ColdLen() int
	// Pack appends the packed form of a cold record.
	Pack(dst, key, encoded []byte) []byte
	// Unpack appends the encoding of a cold record.
	Unpack(dst, key, packed []byte) []byte
	// Builder returns a builder of pages of cold records.
	Builder() Builder
	// Load appends pages of cold records, whose hashes add up to sum. It reports
	// false if their keys do not follow all others.
	Load(pages []Page, sum *Sum) bool
	// Frozen returns the current content, which never changes and may be read by any
	// goroutine. It is the same one until something changes.
	Frozen() Records[K, V]
}

// records implements Records.
type records[K, V any] struct {
	hot *table[K, *V]

	compare func(a, b K) int
	key     func(*V) K
	lean    func(v, room *V) *V // As that of Cold.
	room    *V                  // For lean.
	sum     Sum
	last    *V          // The newest record that is not cold, until sum has its hash; nil for none.
	cold    *Cold[K, V] // Nil if no record is ever cold.
	packed  PackedMap
	frozen  *records[K, V] // Nil once something has changed.
}

// Cold defines which records of a table are unlikely to change, and how their
// keys are encoded in the same order.
type Cold[K, V any] struct {
	Is     func(*V) bool
	Bytes  func(K) []byte
	Key    func([]byte) K
	Packer *Packer
	// Lean returns the part of a record that is hashed, in room if that is not v itself;
	// nil for all of it.
	Lean func(v, room *V) *V
}

// NewRecords returns an empty table of records none of which is cold.
func NewRecords[K, V any](compare func(a, b K) int, key func(*V) K) Records[K, V] {
	return newRecords(compare, key)
}

func newRecords[K, V any](compare func(a, b K) int, key func(*V) K) *records[K, V] {
	return &records[K, V]{hot: newTable[K, *V](compare), compare: compare, key: key}
}

// NewColdRecords returns an empty table of records some of which are cold. Width
// is the number of bytes of a key.
func NewColdRecords[K, V any](compare func(a, b K) int, key func(*V) K, width int, r Cold[K, V]) Records[K, V] {
	out := newRecords(compare, key)
	out.cold, out.packed, out.lean, out.room = &r, NewPackedMap(width, false), r.Lean, new(V)
	return out
}

func (r *records[K, V]) Frozen() Records[K, V] {
	if r.frozen == nil {
		r.settle()
		frozen := *r
		frozen.hot = r.hot.freeze()
		if r.cold != nil {
			r.packed.Share()
			frozen.packed = r.packed
			frozen.packed.Freeze()
		}
		frozen.frozen = &frozen
		r.frozen = &frozen
	}
	return r.frozen
}

func (r *records[K, V]) Len() int { return r.hot.Len() + r.packed.Len() }

func (r *records[K, V]) Digest() (int, Sum) {
	r.settle()
	return r.Len(), r.sum
}

func (r *records[K, V]) Get(k K) (*V, bool) {
	if v, ok := r.hot.Get(k); ok || r.cold == nil {
		return v, ok
	}
	key := r.cold.Bytes(k)
	packed, ok := r.packed.Get(key)
	if !ok {
		return nil, false
	}
	return MustDecode[V](r.cold.Packer.unpack(nil, key, packed)), true
}

func (r *records[K, V]) GetHot(k K) (*V, bool) { return r.hot.Get(k) }

func (r *records[K, V]) Peek(k K, buffer []byte) (v *V, encoded []byte, ok bool) {
	if v, ok := r.hot.Get(k); ok || r.cold == nil {
		return v, nil, ok
	}
	key := r.cold.Bytes(k)
	packed, ok := r.packed.Get(key)
	if !ok {
		return nil, nil, false
	}
	return nil, r.cold.Packer.unpack(buffer[:0], key, packed), true
}

func (r *records[K, V]) Has(k K) bool {
	_, ok := r.hot.Get(k)
	return ok || r.cold != nil && r.packed.has(r.cold.Bytes(k))
}

func (r *records[K, V]) Forget(k K) {
	r.settle()
	r.frozen = nil
	r.hot.Remove(k)
}

// Stored is a table of records of any type that can be hashed and written to a
// snapshot.
type Stored interface {
	// Digest returns the number of records and the sum of their hashes.
	Digest() (int, Sum)
	// Each visits the encoding of every record by key. It is valid only during the
	// call.
	Each(visit func(encoded []byte))
	// Visit is Each that ends when yield returns false.
	Visit(yield func(encoded []byte) bool)
}

func (r *records[K, V]) Each(visit func(encoded []byte)) {
	r.Visit(func(encoded []byte) bool {
		visit(encoded)
		return true
	})
}

func (r *records[K, V]) Visit(yield func(encoded []byte) bool) {
	var buffer []byte
	r.Scan(nil, func(_ K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(MustEncode(v))
		}
		buffer = r.cold.Packer.unpack(buffer[:0], key, packed)
		return yield(buffer)
	})
}

// hash returns the hash of a record's encoding.
func (r *records[K, V]) hash(v *V) [sha256.Size]byte {
	if r.lean != nil {
		v = r.lean(v, r.room)
	}
	return hashOf(v)
}

// settle adds the hash of the newest record to the sum. A record that is put many times
// in between, as an account is by the requests of one entry, is hashed once. It changes
// nothing in frozen records.
func (r *records[K, V]) settle() {
	if r.last != nil {
		r.sum.Add(r.hash(r.last))
		r.last = nil
	}
}

// subtract removes the hash of a record that is replaced or removed from the sum.
func (r *records[K, V]) subtract(old *V) {
	if old == r.last {
		r.last = nil // The sum does not have it.
		return
	}
	r.sum.sub(r.hash(old))
}

func (r *records[K, V]) Put(v *V) *V { return r.put(v, nil) }

func (r *records[K, V]) PutEncoded(v *V, encoded []byte) *V { return r.put(v, encoded) }

// put stores v, whose encoding is nil if the caller does not have it. It encodes a record
// that is cold and hashed as a whole once.
func (r *records[K, V]) put(v *V, encoded []byte) *V {
	r.frozen = nil
	k := r.key(v)
	old, ok := r.Get(k)
	if ok {
		r.subtract(old)
	}
	cold := r.cold != nil && r.cold.Is(v)
	if cold && encoded == nil {
		buffer := takeBuffer()
		defer giveBuffer(buffer)
		*buffer = appendTo(*buffer, v)
		encoded = *buffer
	}
	switch {
	case encoded != nil && r.lean == nil:
		r.sum.Add(sha256.Sum256(encoded))
	case cold:
		r.sum.Add(r.hash(v))
	default:
		r.settle()
		r.last = v
	}
	if cold {
		key, packed := r.cold.Bytes(k), takeBuffer()
		defer giveBuffer(packed)
		*packed = r.cold.Packer.Pack(*packed, key, encoded)
		r.packed.Set(key, *packed)
		if ok {
			r.hot.Remove(k)
		}
		return old
	}
	if ok && r.cold != nil {
		r.packed.Remove(r.cold.Bytes(k))
	}
	r.hot.Set(k, v)
	return old
}

func (r *records[K, V]) Drop(k K) *V {
	old, ok := r.Get(k)
	if ok {
		r.frozen = nil
		r.subtract(old)
		r.hot.Remove(k)
		if r.cold != nil {
			r.packed.Remove(r.cold.Bytes(k))
		}
	}
	return old
}

func (r *records[K, V]) EachFrom(k K, yield func(k K, encoded []byte) bool) {
	var buffer []byte
	r.Scan(&k, func(k K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(k, MustEncode(v))
		}
		buffer = r.cold.Packer.unpack(buffer[:0], key, packed)
		return yield(k, buffer)
	})
}

func (r *records[K, V]) ColdLen() int { return r.packed.Len() }

func (r *records[K, V]) Pack(dst, key, encoded []byte) []byte {
	return r.cold.Packer.Pack(dst, key, encoded)
}

func (r *records[K, V]) Unpack(dst, key, packed []byte) []byte {
	return r.cold.Packer.unpack(dst, key, packed)
}

func (r *records[K, V]) Builder() Builder { return NewBuilder(r.packed.width, false) }

func (r *records[K, V]) Load(pages []Page, sum *Sum) bool {
	r.frozen = nil
	r.sum.merge(sum)
	return r.packed.Load(pages)
}

func (r *records[K, V]) Scan(from *K, yield func(k K, v *V, key, packed []byte) bool) {
	at := r.hot.rows.from(from)
	hot, v, more := at.row()
	goes := true
	next := func() {
		goes = yield(hot, v, nil, nil)
		at.next()
		hot, v, more = at.row()
	}
	if r.cold != nil {
		first := make([]byte, r.packed.width)
		if from != nil {
			first = r.cold.Bytes(*from)
		}
		r.packed.Scan(first, func(key, packed []byte) bool {
			k := r.cold.Key(key)
			for goes && more && r.compare(hot, k) < 0 {
				next()
			}
			goes = goes && yield(k, nil, key, packed)
			return goes
		})
	}
	for goes && more {
		next()
	}
}

// decoded is Scan with every record decoded.
func (r *records[K, V]) decoded(from *K) iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		r.Scan(from, func(k K, v *V, key, packed []byte) bool {
			if v == nil {
				v = MustDecode[V](r.cold.Packer.unpack(nil, key, packed))
			}
			return yield(k, v)
		})
	}
}

func (r *records[K, V]) All() iter.Seq2[K, *V] { return r.decoded(nil) }

func (r *records[K, V]) From(k K) iter.Seq2[K, *V] { return r.decoded(&k) }

func (r *records[K, V]) Descend(k K) iter.Seq2[K, *V] { return r.hot.Descend(k) }

func (r *records[K, V]) DescendCold(k, low K) iter.Seq[K] {
	return func(yield func(K) bool) {
		r.packed.Descend(r.cold.Bytes(k), r.cold.Bytes(low), 0, func(key []byte) bool { return yield(r.cold.Key(key)) })
	}
}

func (r *records[K, V]) Hot() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		r.hot.rows.ascend(nil, func(_ K, v *V) bool { return yield(v) })
	}
}

func (r *records[K, V]) Values() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for _, v := range r.decoded(nil) {
			if !yield(v) {
				return
			}
		}
	}
}

// Index is the set of the records of one table that meet a condition, in an order
// of its own. It is derived: snapshots do not contain it.
type Index[K comparable, V any] interface {
	// Update follows a change of a record from before to after, either nil.
	Update(before, after *V)
	// Len returns the number of keys.
	Len() int
	// Keys yields the keys from k on.
	Keys(k K) iter.Seq[K]
	// All yields all keys.
	All() iter.Seq[K]
	// Next returns the first key from k on.
	Next(k K) (first K, ok bool)
	// FirstKeys returns the first n keys, so that the caller may change the index
	// while it iterates over them.
	FirstKeys(n int) []K
	// Descend yields the keys from k down.
	Descend(k K) iter.Seq[K]
	// Table returns the table of the keys.
	Table() Table[K, struct{}]
	// Frozen returns the current content, which never changes and may be read by any
	// goroutine. It is the same one until something changes.
	Frozen() Index[K, V]
}

// index implements Index.
type index[K comparable, V any] struct {
	keys   *table[K, struct{}]
	key    func(*V) K
	holds  func(*V) bool
	frozen *index[K, V] // The last one that was returned.
}

// NewIndex returns an empty index.
func NewIndex[K comparable, V any](compare func(a, b K) int, key func(*V) K, holds func(*V) bool) Index[K, V] {
	return &index[K, V]{keys: newTable[K, struct{}](compare), key: key, holds: holds}
}

func (x *index[K, V]) Frozen() Index[K, V] {
	if keys := x.keys.freeze(); x.frozen == nil || x.frozen.keys != keys {
		x.frozen = &index[K, V]{keys: keys, key: x.key, holds: x.holds}
		x.frozen.frozen = x.frozen
	}
	return x.frozen
}

func (x *index[K, V]) Table() Table[K, struct{}] { return x.keys }

func (x *index[K, V]) Len() int { return x.keys.Len() }

func (x *index[K, V]) All() iter.Seq[K] {
	return func(yield func(K) bool) {
		x.keys.rows.ascend(nil, func(k K, _ struct{}) bool { return yield(k) })
	}
}

func (x *index[K, V]) Update(before, after *V) {
	was := before != nil && x.holds(before)
	is := after != nil && x.holds(after)
	switch {
	case was && is && x.key(before) == x.key(after):
	case was && is:
		x.keys.Remove(x.key(before))
		x.keys.Set(x.key(after), struct{}{})
	case was:
		x.keys.Remove(x.key(before))
	case is:
		x.keys.Set(x.key(after), struct{}{})
	}
}

func (x *index[K, V]) Keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.keys.rows.ascend(&k, func(k K, _ struct{}) bool { return yield(k) })
	}
}

func (x *index[K, V]) Next(k K) (first K, ok bool) {
	c := x.keys.rows.from(&k)
	first, _, ok = c.row()
	return first, ok
}

func (x *index[K, V]) FirstKeys(n int) []K {
	out := make([]K, 0, min(n, x.Len()))
	x.keys.rows.ascend(nil, func(k K, _ struct{}) bool {
		if len(out) == n {
			return false
		}
		out = append(out, k)
		return true
	})
	return out
}

func (x *index[K, V]) Descend(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.keys.rows.descend(x.keys.rows.root, &k, func(k K, _ struct{}) bool { return yield(k) })
	}
}

// PackedIndex is an Index that contains most records of its table. Its keys are
// stored in a PackedMap, encoded in the same order.
type PackedIndex[K comparable, V any] interface {
	// Update follows a change of a record from before to after, either nil.
	Update(before, after *V)
	// Len returns the number of keys.
	Len() int
	// Load appends keys, which are sorted and follow all others.
	Load(keys iter.Seq[[]byte])
	// Keys yields the keys from k on.
	Keys(k K) iter.Seq[K]
	// Descend yields the keys from k down to low, without the first skip of them.
	Descend(k, low K, skip int) iter.Seq[K]
	// CountBefore returns the number of keys below k.
	CountBefore(k K) int
	// Differ returns an error if two indexes do not have the same keys.
	Differ(name string, want PackedIndex[K, V]) error
	// Frozen returns the current content, which never changes and may be read by any
	// goroutine.
	Frozen() PackedIndex[K, V]
}

// packedIndex implements PackedIndex.
type packedIndex[K comparable, V any] struct {
	packed PackedMap
	encode func(K) []byte
	decode func([]byte) K
	key    func(*V) K
	holds  func(*V) bool
	frozen *packedIndex[K, V] // The last one that was returned.
}

// NewPackedIndex returns an index with keys of width bytes.
func NewPackedIndex[K comparable, V any](
	width int, bytes func(K) []byte, from func([]byte) K, key func(*V) K, holds func(*V) bool,
) PackedIndex[K, V] {
	return &packedIndex[K, V]{packed: NewPackedMap(width, true), encode: bytes, decode: from, key: key, holds: holds}
}

func (x *packedIndex[K, V]) Frozen() PackedIndex[K, V] {
	if x.frozen == nil || !x.packed.shared {
		x.packed.Share()
		frozen := *x
		frozen.packed.Freeze()
		frozen.frozen = &frozen
		x.frozen = &frozen
	}
	return x.frozen
}

func (x *packedIndex[K, V]) Len() int { return x.packed.Len() }

func (x *packedIndex[K, V]) Update(before, after *V) {
	was := before != nil && x.holds(before)
	is := after != nil && x.holds(after)
	if was && is && x.key(before) == x.key(after) {
		return
	}
	if was {
		x.packed.Remove(x.encode(x.key(before)))
	}
	if is {
		x.packed.Set(x.encode(x.key(after)), nil)
	}
}

func (x *packedIndex[K, V]) Load(keys iter.Seq[[]byte]) {
	b := NewBuilder(x.packed.width, true)
	for key := range keys {
		b.Add(key, nil)
	}
	pages, ordered := b.Pages()
	if !ordered || !x.packed.Load(pages) {
		panic("keys are not in their order")
	}
}

func (x *packedIndex[K, V]) Keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.packed.Scan(x.encode(k), func(key, _ []byte) bool { return yield(x.decode(key)) })
	}
}

func (x *packedIndex[K, V]) Descend(k, low K, skip int) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.packed.Descend(x.encode(k), x.encode(low), skip, func(key []byte) bool { return yield(x.decode(key)) })
	}
}

func (x *packedIndex[K, V]) CountBefore(k K) int { return x.packed.CountBefore(x.encode(k)) }

func (x *packedIndex[K, V]) Differ(name string, other PackedIndex[K, V]) error {
	want := other.(*packedIndex[K, V]) //nolint:forcetypeassert // There is no other kind.
	if x.Len() != want.Len() {
		return fmt.Errorf("%s: %d rows, the records say %d", name, x.Len(), want.Len())
	}
	var err error
	want.packed.Scan(make([]byte, want.packed.width), func(key, _ []byte) bool {
		if !x.packed.has(key) {
			err = fmt.Errorf("%s: %v is missing", name, want.decode(key))
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	rows, last := 0, []byte(nil)
	x.packed.Scan(make([]byte, x.packed.width), func(key, _ []byte) bool {
		if rows++; last != nil && bytes.Compare(last, key) >= 0 {
			err = fmt.Errorf("%s: %v is behind %v", name, x.decode(key), x.decode(last))
		}
		last = append(last[:0], key...)
		return err == nil
	})
	if err == nil && rows != x.Len() {
		err = fmt.Errorf("%s: %d rows, counted %d", name, rows, x.Len())
	}
	return err
}
