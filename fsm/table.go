package fsm

import (
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
// change a record is to put a changed copy.
type records[K, V any] struct {
	table[K, *V]

	key func(*V) K
	sum sum
}

func newRecords[K, V any](compare func(a, b K) int, key func(*V) K) records[K, V] {
	return records[K, V]{table: newTable[K, *V](compare), key: key}
}

// tally returns how many records there are and the sum of their hashes.
func (r *records[K, V]) tally() (int, sum) { return r.len(), r.sum }

// stored is a table of records of any type, as hash and snapshot see it.
type stored interface {
	tally() (int, sum)
	each(visit func(record any))
}

// each visits every record by key.
func (r *records[K, V]) each(visit func(record any)) {
	for v := range r.values() {
		visit(v)
	}
}

// put stores v and returns the record it replaces, nil for none.
func (r *records[K, V]) put(v *V) *V {
	k := r.key(v)
	old, ok := r.get(k)
	if ok {
		r.sum.sub(hashOf(old))
	}
	r.sum.add(hashOf(v))
	r.set(k, v)
	return old
}

// drop removes the record at k and returns it, nil for none.
func (r *records[K, V]) drop(k K) *V {
	old, ok := r.get(k)
	if ok {
		r.sum.sub(hashOf(old))
		r.remove(k)
	}
	return old
}

// values yields every record by key.
func (r *records[K, V]) values() iter.Seq[*V] {
	return func(yield func(*V) bool) {
		r.tree.Scan(func(w row[K, *V]) bool { return yield(w.value) })
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
