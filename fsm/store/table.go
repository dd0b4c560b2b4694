package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"
)

// Table is an ordered copy-on-write map. Only one goroutine writes to it and
// shares it. A shared tree is never written again.
type Table[K, V any] struct {
	tree   tree[row[K, V]]
	shared tree[row[K, V]] // For readers; nil once tree has changed.
}

type row[K, V any] struct {
	key   K
	value V
}

// NewTable returns an empty table in the order of compare.
func NewTable[K, V any](compare func(a, b K) int) Table[K, V] {
	return Table[K, V]{tree: newTree(func(a, b row[K, V]) bool { return compare(a.key, b.key) < 0 })}
}

// Get returns the value at k.
func (t *Table[K, V]) Get(k K) (V, bool) {
	r, ok := t.tree.Get(row[K, V]{key: k})
	return r.value, ok
}

// Set stores v at k.
func (t *Table[K, V]) Set(k K, v V) {
	t.shared = nil
	t.tree.Set(row[K, V]{k, v})
}

// Remove removes the row at k, if there is one.
func (t *Table[K, V]) Remove(k K) {
	t.shared = nil
	t.tree.Delete(row[K, V]{key: k})
}

// Len returns the number of rows.
func (t *Table[K, V]) Len() int { return t.tree.Len() }

// All yields every row by key. The table must not change meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Scan(func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}

// From yields the rows from k on, by key.
func (t *Table[K, V]) From(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Ascend(row[K, V]{key: k}, func(r row[K, V]) bool {
			return yield(r.key, r.value)
		})
	}
}

// Descend yields the rows from k down.
func (t *Table[K, V]) Descend(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Descend(row[K, V]{key: k}, func(r row[K, V]) bool {
			return yield(r.key, r.value)
		})
	}
}

// first returns the row with the lowest key.
func (t *Table[K, V]) first() (k K, v V, ok bool) {
	r, ok := t.tree.Min()
	return r.key, r.value, ok
}

// Share makes the current content safe to hand out.
func (t *Table[K, V]) Share() {
	if t.shared == nil {
		t.shared = t.tree.Snapshot()
	}
}

// Freeze makes a copied table read-only.
func (t *Table[K, V]) Freeze() { t.tree = t.shared }

// Shareable is a table of any type that can be published.
type Shareable interface {
	Share()
	Freeze()
}

// Records is a table of immutable records with the sum of their hashes. To
// change a record, put a changed copy. Cold records are stored packed: each read
// decodes the record.
type Records[K, V any] struct {
	Table[K, *V]

	compare func(a, b K) int
	key     func(*V) K
	lean    func(*V) *V // The part of a record that is hashed; nil for all of it.
	sum     Sum
	cold    *Cold[K, V] // Nil if no record is ever cold.
	packed  PackedMap
}

// Cold defines which records of a table are unlikely to change, and how their
// keys are encoded in the same order.
type Cold[K, V any] struct {
	Is     func(*V) bool
	Bytes  func(K) []byte
	Key    func([]byte) K
	Packer *Packer
	Lean   func(*V) *V // The part of a record that is hashed; nil for all of it.
}

// NewRecords returns an empty table of records none of which is cold.
func NewRecords[K, V any](compare func(a, b K) int, key func(*V) K) Records[K, V] {
	return Records[K, V]{Table: NewTable[K, *V](compare), compare: compare, key: key}
}

// NewColdRecords returns an empty table of records some of which are cold. Width
// is the number of bytes of a key.
func NewColdRecords[K, V any](compare func(a, b K) int, key func(*V) K, width int, r Cold[K, V]) Records[K, V] {
	out := NewRecords(compare, key)
	out.cold, out.packed, out.lean = &r, NewPackedMap(width, false), r.Lean
	return out
}

// Share makes the current content safe to hand out.
func (r *Records[K, V]) Share() {
	r.Table.Share()
	if r.cold != nil {
		r.packed.Share()
	}
}

// Freeze makes a copied table read-only.
func (r *Records[K, V]) Freeze() {
	r.Table.Freeze()
	if r.cold != nil {
		r.packed.Freeze()
	}
}

// Len returns the number of records.
func (r *Records[K, V]) Len() int { return r.Table.Len() + r.packed.Len() }

// Digest returns the number of records and the sum of their hashes.
func (r *Records[K, V]) Digest() (int, Sum) { return r.Len(), r.sum }

// Get returns the record at k.
func (r *Records[K, V]) Get(k K) (*V, bool) {
	if v, ok := r.Table.Get(k); ok || r.cold == nil {
		return v, ok
	}
	key := r.cold.Bytes(k)
	packed, ok := r.packed.Get(key)
	if !ok {
		return nil, false
	}
	return MustDecode[V](r.cold.Packer.unpack(nil, key, packed)), true
}

// Peek returns the record at k, or the encoding of a cold one, in buffer.
func (r *Records[K, V]) Peek(k K, buffer []byte) (v *V, encoded []byte, ok bool) {
	if v, ok := r.Table.Get(k); ok || r.cold == nil {
		return v, nil, ok
	}
	key := r.cold.Bytes(k)
	packed, ok := r.packed.Get(key)
	if !ok {
		return nil, nil, false
	}
	return nil, r.cold.Packer.unpack(buffer[:0], key, packed), true
}

// Has reports whether there is a record at k.
func (r *Records[K, V]) Has(k K) bool {
	_, ok := r.Table.Get(k)
	return ok || r.cold != nil && r.packed.has(r.cold.Bytes(k))
}

// Stored is a table of records of any type that can be hashed and written to a
// snapshot.
type Stored interface {
	Digest() (int, Sum)
	Each(visit func(encoded []byte))
	Visit(yield func(encoded []byte) bool)
}

// Each visits the encoding of every record by key. It is valid only during the
// call.
func (r *Records[K, V]) Each(visit func(encoded []byte)) {
	r.Visit(func(encoded []byte) bool {
		visit(encoded)
		return true
	})
}

// Visit is Each that ends when yield returns false.
func (r *Records[K, V]) Visit(yield func(encoded []byte) bool) {
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
func (r *Records[K, V]) hash(v *V) [sha256.Size]byte {
	if r.lean != nil {
		v = r.lean(v)
	}
	return sha256.Sum256(MustEncode(v))
}

// Put stores v and returns the record it replaces, nil for none.
func (r *Records[K, V]) Put(v *V) *V {
	k := r.key(v)
	old, ok := r.Get(k)
	if ok {
		r.sum.sub(r.hash(old))
	}
	r.sum.Add(r.hash(v))
	if r.cold != nil && r.cold.Is(v) {
		key := r.cold.Bytes(k)
		r.packed.Set(key, r.cold.Packer.Pack(nil, key, MustEncode(v)))
		if ok {
			r.Remove(k)
		}
		return old
	}
	if ok && r.cold != nil {
		r.packed.Remove(r.cold.Bytes(k))
	}
	r.Set(k, v)
	return old
}

// Drop removes the record at k and returns it, nil for none.
func (r *Records[K, V]) Drop(k K) *V {
	old, ok := r.Get(k)
	if ok {
		r.sum.sub(r.hash(old))
		r.Remove(k)
		if r.cold != nil {
			r.packed.Remove(r.cold.Bytes(k))
		}
	}
	return old
}

// EachFrom yields the encoding of every record from k on, by key. It is valid
// only during the call.
func (r *Records[K, V]) EachFrom(k K, yield func(k K, encoded []byte) bool) {
	var buffer []byte
	r.Scan(&k, func(k K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(k, MustEncode(v))
		}
		buffer = r.cold.Packer.unpack(buffer[:0], key, packed)
		return yield(k, buffer)
	})
}

// ColdLen returns the number of cold records.
func (r *Records[K, V]) ColdLen() int { return r.packed.Len() }

// Pack appends the packed form of a cold record.
func (r *Records[K, V]) Pack(dst, key, encoded []byte) []byte {
	return r.cold.Packer.Pack(dst, key, encoded)
}

// Unpack appends the encoding of a cold record.
func (r *Records[K, V]) Unpack(dst, key, packed []byte) []byte {
	return r.cold.Packer.unpack(dst, key, packed)
}

// Builder returns a builder of pages of cold records.
func (r *Records[K, V]) Builder() Builder { return NewBuilder(r.packed.width, false) }

// Load appends pages of cold records, whose hashes add up to sum. It reports
// false if their keys do not follow all others.
func (r *Records[K, V]) Load(pages []Page, sum *Sum) bool {
	r.sum.merge(sum)
	return r.packed.Load(pages)
}

// Scan yields every record from a key on, or all, by key: v, or the key and the
// packed form of a cold record, which are valid only during the call.
func (r *Records[K, V]) Scan(from *K, yield func(k K, v *V, key, packed []byte) bool) {
	at := r.tree.Cursor()
	var more bool
	if from == nil {
		more = at.First()
	} else {
		more = at.Seek(row[K, *V]{key: *from})
	}
	goes := true
	if r.cold != nil {
		first := make([]byte, r.packed.width)
		if from != nil {
			first = r.cold.Bytes(*from)
		}
		r.packed.Scan(first, func(key, packed []byte) bool {
			k := r.cold.Key(key)
			for ; goes && more && r.compare(at.Item().key, k) < 0; more = at.Next() {
				goes = yield(at.Item().key, at.Item().value, nil, nil)
			}
			goes = goes && yield(k, nil, key, packed)
			return goes
		})
	}
	for ; goes && more; more = at.Next() {
		goes = yield(at.Item().key, at.Item().value, nil, nil)
	}
}

// decoded is Scan with every record decoded.
func (r *Records[K, V]) decoded(from *K) iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		r.Scan(from, func(k K, v *V, key, packed []byte) bool {
			if v == nil {
				v = MustDecode[V](r.cold.Packer.unpack(nil, key, packed))
			}
			return yield(k, v)
		})
	}
}

// All yields every record with its key, by key.
func (r *Records[K, V]) All() iter.Seq2[K, *V] { return r.decoded(nil) }

// From yields the records from k on, by key.
func (r *Records[K, V]) From(k K) iter.Seq2[K, *V] { return r.decoded(&k) }

// Hot yields the records that are not cold.
func (r *Records[K, V]) Hot() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		r.tree.Scan(func(w row[K, *V]) bool { return yield(w.value) })
	}
}

// Values yields every record by key.
func (r *Records[K, V]) Values() iter.Seq[*V] {
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
type Index[K comparable, V any] struct {
	Table[K, struct{}]

	key   func(*V) K
	holds func(*V) bool
}

// NewIndex returns an empty index.
func NewIndex[K comparable, V any](compare func(a, b K) int, key func(*V) K, holds func(*V) bool) Index[K, V] {
	return Index[K, V]{Table: NewTable[K, struct{}](compare), key: key, holds: holds}
}

// Update follows a change of a record from before to after, either nil.
func (x *Index[K, V]) Update(before, after *V) {
	was := before != nil && x.holds(before)
	is := after != nil && x.holds(after)
	switch {
	case was && is && x.key(before) == x.key(after):
	case was && is:
		x.Remove(x.key(before))
		x.Set(x.key(after), struct{}{})
	case was:
		x.Remove(x.key(before))
	case is:
		x.Set(x.key(after), struct{}{})
	}
}

// Keys yields the keys from k on.
func (x *Index[K, V]) Keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.tree.Ascend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool {
			return yield(r.key)
		})
	}
}

// Next returns the first key from k on.
func (x *Index[K, V]) Next(k K) (first K, ok bool) {
	x.tree.Ascend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool {
		first, ok = r.key, true
		return false
	})
	return first, ok
}

// FirstKeys returns the first n keys, so that the caller may change the index
// while it iterates over them.
func (x *Index[K, V]) FirstKeys(n int) []K {
	out := make([]K, 0, min(n, x.Len()))
	x.tree.Scan(func(r row[K, struct{}]) bool {
		if len(out) == n {
			return false
		}
		out = append(out, r.key)
		return true
	})
	return out
}

// Descend yields the keys from k down.
func (x *Index[K, V]) Descend(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.tree.Descend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool { return yield(r.key) })
	}
}

// PackedIndex is an Index that contains most records of its table. Its keys are
// stored in a PackedMap, encoded in the same order.
type PackedIndex[K comparable, V any] struct {
	packed PackedMap
	encode func(K) []byte
	decode func([]byte) K
	key    func(*V) K
	holds  func(*V) bool
}

// NewPackedIndex returns an index with keys of width bytes.
func NewPackedIndex[K comparable, V any](
	width int, bytes func(K) []byte, from func([]byte) K, key func(*V) K, holds func(*V) bool,
) PackedIndex[K, V] {
	return PackedIndex[K, V]{packed: NewPackedMap(width, true), encode: bytes, decode: from, key: key, holds: holds}
}

// Share makes the current content safe to hand out.
func (x *PackedIndex[K, V]) Share() { x.packed.Share() }

// Freeze makes a copied index read-only.
func (x *PackedIndex[K, V]) Freeze() { x.packed.Freeze() }

// Len returns the number of keys.
func (x *PackedIndex[K, V]) Len() int { return x.packed.Len() }

// Update follows a change of a record from before to after, either nil.
func (x *PackedIndex[K, V]) Update(before, after *V) {
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

// Load appends keys, which are sorted and follow all others.
func (x *PackedIndex[K, V]) Load(keys iter.Seq[[]byte]) {
	b := NewBuilder(x.packed.width, true)
	for key := range keys {
		b.Add(key, nil)
	}
	pages, ordered := b.Pages()
	if !ordered || !x.packed.Load(pages) {
		panic("keys are not in their order")
	}
}

// Keys yields the keys from k on.
func (x *PackedIndex[K, V]) Keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.packed.Scan(x.encode(k), func(key, _ []byte) bool { return yield(x.decode(key)) })
	}
}

// Descend yields the keys from k down to low, without the first skip of them.
func (x *PackedIndex[K, V]) Descend(k, low K, skip int) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.packed.Descend(x.encode(k), x.encode(low), skip, func(key []byte) bool { return yield(x.decode(key)) })
	}
}

// CountBefore returns the number of keys below k.
func (x *PackedIndex[K, V]) CountBefore(k K) int { return x.packed.CountBefore(x.encode(k)) }

// Differ returns an error if two indexes do not have the same keys.
func (x *PackedIndex[K, V]) Differ(name string, want *PackedIndex[K, V]) error {
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
