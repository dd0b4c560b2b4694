package fsm

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"iter"

	"github.com/tidwall/btree"
)

// table is an ordered copy-on-write map. Only the apply goroutine writes to it
// and shares it; a shared tree is never written again.
type table[K, V any] struct {
	tree   *btree.BTreeG[row[K, V]]
	shared *btree.BTreeG[row[K, V]] // What views see; nil once tree has changed.
}

type row[K, V any] struct {
	key   K
	value V
}

func newTable[K, V any](compare func(a, b K) int) table[K, V] {
	less := func(a, b row[K, V]) bool { return compare(a.key, b.key) < 0 }
	return table[K, V]{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (t *table[K, V]) get(k K) (V, bool) {
	r, ok := t.tree.Get(row[K, V]{key: k})
	return r.value, ok
}

func (t *table[K, V]) set(k K, v V) {
	t.shared = nil
	t.tree.Set(row[K, V]{k, v})
}

func (t *table[K, V]) remove(k K) {
	t.shared = nil
	t.tree.Delete(row[K, V]{key: k})
}

func (t *table[K, V]) len() int { return t.tree.Len() }

// all yields every row by key. Nobody may write to t meanwhile.
func (t *table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Scan(func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}

// from yields the rows from k on, by key.
func (t *table[K, V]) from(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Ascend(row[K, V]{key: k}, func(r row[K, V]) bool {
			return yield(r.key, r.value)
		})
	}
}

// downFrom yields the rows from k down.
func (t *table[K, V]) downFrom(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.tree.Descend(row[K, V]{key: k}, func(r row[K, V]) bool {
			return yield(r.key, r.value)
		})
	}
}

// first returns the row with the lowest key.
func (t *table[K, V]) first() (k K, v V, ok bool) {
	r, ok := t.tree.Min()
	return r.key, r.value, ok
}

// share makes the tree as it is now safe to hand out.
func (t *table[K, V]) share() {
	if t.shared == nil {
		t.shared = t.tree.IsoCopy()
	}
}

// freeze turns a copied table into the shared one.
func (t *table[K, V]) freeze() { t.tree = t.shared }

// shareable is a table of any type, as publishing sees it.
type shareable interface {
	share()
	freeze()
}

// records is a table of immutable records with the sum of their hashes. To
// change a record is to put a changed copy. Those that rest are packed on a
// shelf: reading one decodes it anew.
type records[K, V any] struct {
	table[K, *V]

	compare func(a, b K) int
	key     func(*V) K
	lean    func(*V) *V // What of a record is hashed; nil for all of it.
	sum     sum
	resting *resting[K, V] // Nil when none of them ever rests.
	shelf   shelf
}

// resting says which records of a table are unlikely to change, and how their
// keys are bytes in the same order.
type resting[K, V any] struct {
	is     func(*V) bool
	bytes  func(K) []byte
	key    func([]byte) K
	packer *packer
	lean   func(*V) *V // What of a record is hashed; nil for all of it.
}

func newRecords[K, V any](compare func(a, b K) int, key func(*V) K) records[K, V] {
	return records[K, V]{table: newTable[K, *V](compare), compare: compare, key: key}
}

// newRestingRecords returns a table of records some of which rest. Width is how
// many bytes a key has.
func newRestingRecords[K, V any](compare func(a, b K) int, key func(*V) K, width int, r resting[K, V]) records[K, V] {
	out := newRecords(compare, key)
	out.resting, out.shelf, out.lean = &r, newShelf(width, false), r.lean
	return out
}

// share makes the table as it is now safe to hand out.
func (r *records[K, V]) share() {
	r.table.share()
	if r.resting != nil {
		r.shelf.share()
	}
}

// freeze turns a copied table into the shared one.
func (r *records[K, V]) freeze() {
	r.table.freeze()
	if r.resting != nil {
		r.shelf.freeze()
	}
}

func (r *records[K, V]) len() int { return r.table.len() + r.shelf.len() }

// tally returns how many records there are and the sum of their hashes.
func (r *records[K, V]) tally() (int, sum) { return r.len(), r.sum }

// get returns the record at k.
func (r *records[K, V]) get(k K) (*V, bool) {
	if v, ok := r.table.get(k); ok || r.resting == nil {
		return v, ok
	}
	key := r.resting.bytes(k)
	packed, ok := r.shelf.get(key)
	if !ok {
		return nil, false
	}
	return mustDecode[V](r.resting.packer.unpack(nil, key, packed)), true
}

// peek returns the record at k, or the encoding of one that rests, in room.
func (r *records[K, V]) peek(k K, room []byte) (v *V, encoded []byte, ok bool) {
	if v, ok := r.table.get(k); ok || r.resting == nil {
		return v, nil, ok
	}
	key := r.resting.bytes(k)
	packed, ok := r.shelf.get(key)
	if !ok {
		return nil, nil, false
	}
	return nil, r.resting.packer.unpack(room[:0], key, packed), true
}

// has reports whether there is a record at k.
func (r *records[K, V]) has(k K) bool {
	_, ok := r.table.get(k)
	return ok || r.resting != nil && r.shelf.has(r.resting.bytes(k))
}

// stored is a table of records of any type, as hash and snapshot see it.
type stored interface {
	tally() (int, sum)
	each(visit func(encoded []byte))
	visit(yield func(encoded []byte) bool)
}

// each visits the encoding of every record by key, which is only lent.
func (r *records[K, V]) each(visit func(encoded []byte)) {
	r.visit(func(encoded []byte) bool {
		visit(encoded)
		return true
	})
}

// visit yields what each visits, until yield returns false.
func (r *records[K, V]) visit(yield func(encoded []byte) bool) {
	var room []byte
	r.scan(nil, func(_ K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(mustEncode(v))
		}
		room = r.resting.packer.unpack(room[:0], key, packed)
		return yield(room)
	})
}

// hash returns the hash of a record's encoding.
func (r *records[K, V]) hash(v *V) [sha256.Size]byte {
	if r.lean != nil {
		v = r.lean(v)
	}
	return sha256.Sum256(mustEncode(v))
}

// put stores v and returns the record it replaces, nil for none.
func (r *records[K, V]) put(v *V) *V {
	k := r.key(v)
	old, ok := r.get(k)
	if ok {
		r.sum.sub(r.hash(old))
	}
	r.sum.add(r.hash(v))
	if r.resting != nil && r.resting.is(v) {
		key := r.resting.bytes(k)
		r.shelf.set(key, r.resting.packer.pack(nil, key, mustEncode(v)))
		if ok {
			r.remove(k)
		}
		return old
	}
	if ok && r.resting != nil {
		r.shelf.remove(r.resting.bytes(k))
	}
	r.set(k, v)
	return old
}

// drop removes the record at k and returns it, nil for none.
func (r *records[K, V]) drop(k K) *V {
	old, ok := r.get(k)
	if ok {
		r.sum.sub(r.hash(old))
		r.remove(k)
		if r.resting != nil {
			r.shelf.remove(r.resting.bytes(k))
		}
	}
	return old
}

// eachFrom yields the encoding of every record from k on, by key. It is only
// lent.
func (r *records[K, V]) eachFrom(k K, yield func(k K, encoded []byte) bool) {
	var room []byte
	r.scan(&k, func(k K, v *V, key, packed []byte) bool {
		if v != nil {
			return yield(k, mustEncode(v))
		}
		room = r.resting.packer.unpack(room[:0], key, packed)
		return yield(k, room)
	})
}

// resting returns how many records rest.
func (r *records[K, V]) packed() int { return r.shelf.len() }

// pack appends the packed form of a record that rests.
func (r *records[K, V]) pack(dst, key, encoded []byte) []byte {
	return r.resting.packer.pack(dst, key, encoded)
}

// unpack appends the encoding of a record that rests.
func (r *records[K, V]) unpack(dst, key, packed []byte) []byte {
	return r.resting.packer.unpack(dst, key, packed)
}

// binder returns what makes pages of records that rest.
func (r *records[K, V]) binder() binder { return newBinder(r.shelf.width, false) }

// load adds pages of records that rest, the sum of whose hashes is sum. It
// reports false when their keys are not behind all others.
func (r *records[K, V]) load(pages []page, sum *sum) bool {
	r.sum.merge(sum)
	return r.shelf.load(pages)
}

// scan yields every record from a key on, or all, by key: v, or the key and the
// packed form of one that rests, which are only lent.
func (r *records[K, V]) scan(from *K, yield func(k K, v *V, key, packed []byte) bool) {
	at := r.tree.Iter()
	var more bool
	if from == nil {
		more = at.First()
	} else {
		more = at.Seek(row[K, *V]{key: *from})
	}
	goes := true
	if r.resting != nil {
		first := make([]byte, r.shelf.width)
		if from != nil {
			first = r.resting.bytes(*from)
		}
		r.shelf.scan(first, func(key, packed []byte) bool {
			k := r.resting.key(key)
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
func (r *records[K, V]) decoded(from *K) iter.Seq2[K, *V] {
	return func(yield func(K, *V) bool) {
		r.scan(from, func(k K, v *V, key, packed []byte) bool {
			if v == nil {
				v = mustDecode[V](r.resting.packer.unpack(nil, key, packed))
			}
			return yield(k, v)
		})
	}
}

// all yields every record with its key, by key.
func (r *records[K, V]) all() iter.Seq2[K, *V] { return r.decoded(nil) }

// from yields the records from k on, by key.
func (r *records[K, V]) from(k K) iter.Seq2[K, *V] { return r.decoded(&k) }

// hot yields the records that do not rest.
func (r *records[K, V]) hot() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		r.tree.Scan(func(w row[K, *V]) bool { return yield(w.value) })
	}
}

// values yields every record by key.
func (r *records[K, V]) values() iter.Seq[*V] {
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
type index[K comparable, V any] struct {
	table[K, struct{}]

	key   func(*V) K
	holds func(*V) bool
}

func newIndex[K comparable, V any](compare func(a, b K) int, key func(*V) K, holds func(*V) bool) index[K, V] {
	return index[K, V]{table: newTable[K, struct{}](compare), key: key, holds: holds}
}

// update follows a change of a record from before to after, either nil.
func (x *index[K, V]) update(before, after *V) {
	was := before != nil && x.holds(before)
	is := after != nil && x.holds(after)
	switch {
	case was && is && x.key(before) == x.key(after):
	case was && is:
		x.remove(x.key(before))
		x.set(x.key(after), struct{}{})
	case was:
		x.remove(x.key(before))
	case is:
		x.set(x.key(after), struct{}{})
	}
}

// keys yields the keys from k on.
func (x *index[K, V]) keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.tree.Ascend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool {
			return yield(r.key)
		})
	}
}

// next returns the first key from k on.
func (x *index[K, V]) next(k K) (first K, ok bool) {
	x.tree.Ascend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool {
		first, ok = r.key, true
		return false
	})
	return first, ok
}

// take returns the first n keys, so that the caller may change the index while
// it goes through them.
func (x *index[K, V]) take(n int) []K {
	out := make([]K, 0, min(n, x.len()))
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
func (x *index[K, V]) downKeys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.tree.Descend(row[K, struct{}]{key: k}, func(r row[K, struct{}]) bool { return yield(r.key) })
	}
}

// packedIndex is an index that most records of its table are in. Its keys lie
// on a shelf, as bytes in the same order.
type packedIndex[K comparable, V any] struct {
	shelf shelf
	bytes func(K) []byte
	from  func([]byte) K
	key   func(*V) K
	holds func(*V) bool
}

// newPackedIndex returns an index with keys of width bytes.
func newPackedIndex[K comparable, V any](
	width int, bytes func(K) []byte, from func([]byte) K, key func(*V) K, holds func(*V) bool,
) packedIndex[K, V] {
	return packedIndex[K, V]{shelf: newShelf(width, true), bytes: bytes, from: from, key: key, holds: holds}
}

func (x *packedIndex[K, V]) share()   { x.shelf.share() }
func (x *packedIndex[K, V]) freeze()  { x.shelf.freeze() }
func (x *packedIndex[K, V]) len() int { return x.shelf.len() }

// update follows a change of a record from before to after, either nil.
func (x *packedIndex[K, V]) update(before, after *V) {
	was := before != nil && x.holds(before)
	is := after != nil && x.holds(after)
	if was && is && x.key(before) == x.key(after) {
		return
	}
	if was {
		x.shelf.remove(x.bytes(x.key(before)))
	}
	if is {
		x.shelf.set(x.bytes(x.key(after)), nil)
	}
}

// load adds keys, which are in their order and behind all others.
func (x *packedIndex[K, V]) load(keys iter.Seq[[]byte]) {
	b := newBinder(x.shelf.width, true)
	for key := range keys {
		b.add(key, nil)
	}
	pages, ordered := b.take()
	if !ordered || !x.shelf.load(pages) {
		panic("keys are not in their order")
	}
}

// keys yields the keys from k on.
func (x *packedIndex[K, V]) keys(k K) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.shelf.scan(x.bytes(k), func(key, _ []byte) bool { return yield(x.from(key)) })
	}
}

// downKeys yields the keys from k down to low, without the first skip of them.
func (x *packedIndex[K, V]) downKeys(k, low K, skip int) iter.Seq[K] {
	return func(yield func(K) bool) {
		x.shelf.scanDown(x.bytes(k), x.bytes(low), skip, func(key []byte) bool { return yield(x.from(key)) })
	}
}

// before returns how many keys are before k.
func (x *packedIndex[K, V]) before(k K) int { return x.shelf.before(x.bytes(k)) }

// differ returns an error when two indexes do not have the same keys.
func (x *packedIndex[K, V]) differ(name string, want *packedIndex[K, V]) error {
	if x.len() != want.len() {
		return fmt.Errorf("%s: %d rows, the records say %d", name, x.len(), want.len())
	}
	var err error
	want.shelf.scan(make([]byte, want.shelf.width), func(key, _ []byte) bool {
		if !x.shelf.has(key) {
			err = fmt.Errorf("%s: %v is missing", name, want.from(key))
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	rows, last := 0, []byte(nil)
	x.shelf.scan(make([]byte, x.shelf.width), func(key, _ []byte) bool {
		if rows++; last != nil && bytes.Compare(last, key) >= 0 {
			err = fmt.Errorf("%s: %v is behind %v", name, x.from(key), x.from(last))
		}
		last = append(last[:0], key...)
		return err == nil
	})
	if err == nil && rows != x.len() {
		err = fmt.Errorf("%s: %d rows, counted %d", name, rows, x.len())
	}
	return err
}
