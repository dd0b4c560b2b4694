package store

import "github.com/tidwall/btree"

// tree is an ordered set of rows whose snapshots cost nothing: both sides copy what
// they write. It does not embed the library's type, whose 60 methods would be
// compiled once more for each type of row.
type tree[R any] struct {
	rows *btree.BTreeG[R]
}

func newTree[R any](less func(a, b R) bool) tree[R] {
	return tree[R]{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (t tree[R]) snapshot() tree[R] { return tree[R]{t.rows.IsoCopy()} }
