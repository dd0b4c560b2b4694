package store

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"

	"github.com/tidwall/btree"
)

// table is an ordered copy-on-write map. Only the apply goroutine writes to it
// and shares it; a shared tree is never written again.
type Table[K, V any] struct {
	tree   *btree.BTreeG[row[K, V]]
	shared *btree.BTreeG[row[K, V]] // What views see; nil once tree has changed.
}

type row[K, V any] struct {
	key   K
	value V
}

func NewTable[K, V any](compare func(a, b K) int) Table[K, V] {
	less := func(a, b row[K, V]) bool { return compare(a.key, b.key) < 0 }
	return Table[K, V]{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (t *Table[K, V]) Get(k K) (V, bool) {
	r, ok := t.tree.Get(row[K, V]{key: k})
	return r.value, ok
}

func (t *Table[K, V]) Set(k K, v V) {
	t.shared = nil
	t.tree.Set(row[K, V]{k, v})
}

func (t *Table[K, V]) Remove(k K) {
	t.shared = nil
	t.tree.Delete(row[K, V]{key: k})
}

func (t *Table[K, V]) Len() int { return t.tree.Len() }

// all yields every row by key. Nobody may write to t meanwhile.
func (t *Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Scan(func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}

// from yields the rows from k on, by key.
func (t *Table[K, V]) From(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Ascend(row[K, V]{key: k}, func(r row[K, V]) bool {
			return yield(r.key, r.value)
		})
	}
}

// downFrom yields the rows from k down.
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

// share makes the tree as it is now safe to hand out.
func (t *Table[K, V]) Share() {
	if t.shared == nil {
		t.shared = t.tree.IsoCopy()
	}
}

// freeze turns a copied table into the shared one.
func (t *Table[K, V]) Freeze() { t.tree = t.shared }

// shareable is a table of any type, as publishing sees it.
type Shareable interface {
	Share()
	Freeze()
}

// records is a table of immutable records with the sum of their hashes. To
// change a record is to put a changed copy. Those that rest are packed on a
// shelf: reading one decodes it anew.
type Records[K, V any] struct {
	Table[K, *V]

	compare func(a, b K) int
	key     func(*V) K
	lean    func(*V) *V // What of a record is hashed; nil for all of it.
	sum     Sum
	cold    *Cold[K, V] // Nil when none of them ever rests.
	packed  PackedMap
}

// resting says which records of a table are unlikely to change, and how their
// keys are bytes in the same order.
type Cold[K, V any] struct {
	Is     func(*V) bool
	Bytes  func(K) []byte
	Key    func([]byte) K
	Packer *packer
	Lean   func(*V) *V // What of a record is hashed; nil for all of it.
}

func NewRecords[K, V any](compare func(a, b K) int, key func(*V) K) Records[K, V] {
	return Records[K, V]{Table: NewTable[K, *V](compare), compare: compare, key: key}
}

// newRestingRecords returns a table of records some of which rest. Width is how
// many bytes a key has.
func NewColdRecords[K, V any](compare func(a, b K) int, key func(*V) K, width int, r Cold[K, V]) Records[K, V] {
	out := NewRecords(compare, key)
	out.cold, out.packed, out.lean = &r, NewPackedMap(width, false), r.Lean
	return out
}

// share makes the table as it is now safe to hand out.
func (r *Records[K, V]) Share() {
	r.Table.Share()
	if r.cold != nil {
		r.packed.Share()
	}
}

// freeze turns a copied table into the shared one.
func (r *Records[K, V]) Freeze() {
	r.Table.Freeze()
	if r.cold != nil {
		r.packed.Freeze()
	}
}

func (r *Records[K, V]) Len() int { return r.Table.Len() + r.packed.Len() }

// tally returns how many records there are and the sum of their hashes.
func (r *Records[K, V]) Digest() (int, Sum) { return r.Len(), r.sum }

// get returns the record at k.
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

// peek returns the record at k, or the encoding of one that rests, in room.
func (r *Records[K, V]) Peek(k K, room []byte) (v *V, encoded []byte, ok bool) {
	if v, ok := r.Table.Get(k); ok || r.cold == nil {
		return v, nil, ok
	}
	key := r.cold.Bytes(k)
	packed, ok := r.packed.Get(key)
	if !ok {
		return nil, nil, false
	}
	return nil, r.cold.Packer.unpack(room[:0], key, packed), true
}

// has reports whether there is a record at k.
func (r *Records[K, V]) Has(k K) bool {
	_, ok := r.Table.Get(k)
	return ok || r.cold != nil && r.packed.has(r.cold.Bytes(k))
}

// stored is a table of records of any type, as hash and snapshot see it.
type Stored interface {
	Digest() (int, Sum)
	Each(visit func(encoded []byte))
	Visit(yield func(encoded []byte) bool)
}

// each visits the encoding of every record by key, which is only lent.
func (r *Records[K, V]) Each(visit func(encoded []byte)) {
	r.Visit(func(encoded []byte) bool {
		visit(encoded)
		return true
	})
}

// visit yields what each visits, until yield returns false.
func (r *Records[K, V]) Visit(yield func(encoded []byte) bool) {
	var room []byte
	r.Scan(nil, func(_ K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(MustEncode(v))
		}
		room = r.cold.Packer.unpack(room[:0], key, packed)
		return yield(room)
	})
}

// hash returns the hash of a record's encoding.
func (r *Records[K, V]) hash(v *V) [sha256.Size]byte {
	if r.lean != nil {
		v = r.lean(v)
	}
	return sha256.Sum256(MustEncode(v))
}

// put stores v and returns the record it replaces, nil for none.
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

// drop removes the record at k and returns it, nil for none.
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

// eachFrom yields the encoding of every record from k on, by key. It is only
// lent.
func (r *Records[K, V]) EachFrom(k K, yield func(k K, encoded []byte) bool) {
	var room []byte
	r.Scan(&k, func(k K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(k, MustEncode(v))
		}
		room = r.cold.Packer.unpack(room[:0], key, packed)
		return yield(k, room)
	})
}

// resting returns how many records rest.
func (r *Records[K, V]) ColdLen() int { return r.packed.Len() }

// pack appends the packed form of a record that rests.
func (r *Records[K, V]) Pack(dst, key, encoded []byte) []byte {
	return r.cold.Packer.Pack(dst, key, encoded)
}

// unpack appends the encoding of a record that rests.
func (r *Records[K, V]) Unpack(dst, key, packed []byte) []byte {
	return r.cold.Packer.unpack(dst, key, packed)
}

// binder returns what makes pages of records that rest.
func (r *Records[K, V]) Builder() Builder { return NewBuilder(r.packed.width, false) }

// load adds pages of records that rest, the sum of whose hashes is sum. It
// reports false when their keys are not behind all others.
func (r *Records[K, V]) Load(pages []Page, sum *Sum) bool {
	r.sum.merge(sum)
	return r.packed.Load(pages)
}

// scan yields every record from a key on, or all, by key: v, or the key and the
// packed form of one that rests, which are only lent.
func (r *Records[K, V]) Scan(from *K, yield func(k K, v *V, key, packed []byte) bool) {
	at := r.tree.Iter()
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

// decoded yields what scan does, decoded.
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

// all yields every record with its key, by key.
func (r *Records[K, V]) All() iter.Seq2[K, *V] { return r.decoded(nil) }

// from yields the records from k on, by key.
func (r *Records[K, V]) From(k K) iter.Seq2[K, *V] { return r.decoded(&k) }

// hot yields the records that do not rest.
func (r *Records[K, V]) Hot() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		r.tree.Scan(func(w row[K, *V]) bool { return yield(w.value) })
	}
}

// values yields every record by key.
func (r *Records[K, V]) Values() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for _, v := range r.decoded(nil) {
			if !yield(v) {
				return
			}
		}
	}
}

// index is the set of those records of one table that hold a condition, in an
// order of its own. It is derived: snapshots do not carry it.
type Index[K comparable, V any] struct {
	Table[K, struct{}]

	key   func(*V) K
	holds func(*V) bool
}

func NewIndex[K comparable, V any](compare func(a, b K) int, key func(*V) K, holds func(*V) bool) Index[K, V] {
	return Index[K, V]{Table: NewTable[K, struct{}](compare), key: key, holds: holds}
}

// update follows a change of a record from before to after, either nil.
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

// keys yields the keys from k on.
func (x *Index[K, V]) Keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.tree.Ascend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool {
			return yield(r.key)
		})
	}
}

// next returns the first key from k on.
func (x *Index[K, V]) Next(k K) (first K, ok bool) {
	x.tree.Ascend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool {
		first, ok = r.key, true
		return false
	})
	return first, ok
}

// take returns the first n keys, so that the caller may change the index while
// it goes through them.
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

// downKeys yields the keys from k down.
func (x *Index[K, V]) Descend(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.tree.Descend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool { return yield(r.key) })
	}
}

// packedIndex is an index that most records of its table are in. Its keys lie
// on a shelf, as bytes in the same order.
type PackedIndex[K comparable, V any] struct {
	packed PackedMap
	encode func(K) []byte
	decode func([]byte) K
	key    func(*V) K
	holds  func(*V) bool
}

// newPackedIndex returns an index with keys of width bytes.
func NewPackedIndex[K comparable, V any](
	width int, bytes func(K) []byte, from func([]byte) K, key func(*V) K, holds func(*V) bool,
) PackedIndex[K, V] {
	return PackedIndex[K, V]{packed: NewPackedMap(width, true), encode: bytes, decode: from, key: key, holds: holds}
}

func (x *PackedIndex[K, V]) Share()   { x.packed.Share() }
func (x *PackedIndex[K, V]) Freeze()  { x.packed.Freeze() }
func (x *PackedIndex[K, V]) Len() int { return x.packed.Len() }

// update follows a change of a record from before to after, either nil.
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

// load adds keys, which are in their order and behind all others.
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

// keys yields the keys from k on.
func (x *PackedIndex[K, V]) Keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.packed.Scan(x.encode(k), func(key, _ []byte) bool { return yield(x.decode(key)) })
	}
}

// downKeys yields the keys from k down to low, without the first skip of them.
func (x *PackedIndex[K, V]) Descend(k, low K, skip int) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.packed.Descend(x.encode(k), x.encode(low), skip, func(key []byte) bool { return yield(x.decode(key)) })
	}
}

// before returns how many keys are before k.
func (x *PackedIndex[K, V]) CountBefore(k K) int { return x.packed.CountBefore(x.encode(k)) }

// differ returns an error when two indexes do not have the same keys.
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
