package store

import "github.com/tidwall/btree"

// tree is an ordered set of rows. Table holds it as an interface because Go
// compiles all methods of an instantiated type into every package that can reach
// the type through a struct: with the library's type in Table, each importer of
// package fsm compiled 14,000 functions.
type tree[R any] interface {
	Get(R) (R, bool)
	Set(R)
	Delete(R)
	Len() int
	Min() (R, bool)
	Scan(yield func(R) bool)
	Ascend(from R, yield func(R) bool)
	Descend(from R, yield func(R) bool)
	Snapshot() tree[R]
	Cursor() cursor[R]
}

// cursor is a position in a tree.
type cursor[R any] interface {
	First() bool
	Seek(R) bool
	Next() bool
	Item() R
}

// bTree is a tree whose snapshots cost nothing: both sides copy what they write.
// It does not embed the library's type, whose 60 methods would be compiled once
// more for each type of row.
type bTree[R any] struct {
	rows *btree.BTreeG[R]
}

func newTree[R any](less func(a, b R) bool) tree[R] {
	return bTree[R]{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (t bTree[R]) Get(at R) (R, bool)                 { return t.rows.Get(at) }
func (t bTree[R]) Set(row R)                          { t.rows.Set(row) }
func (t bTree[R]) Delete(at R)                        { t.rows.Delete(at) }
func (t bTree[R]) Len() int                           { return t.rows.Len() }
func (t bTree[R]) Min() (R, bool)                     { return t.rows.Min() }
func (t bTree[R]) Scan(yield func(R) bool)            { t.rows.Scan(yield) }
func (t bTree[R]) Ascend(from R, yield func(R) bool)  { t.rows.Ascend(from, yield) }
func (t bTree[R]) Descend(from R, yield func(R) bool) { t.rows.Descend(from, yield) }
func (t bTree[R]) Snapshot() tree[R]                  { return bTree[R]{t.rows.IsoCopy()} }

// Cursor returns a cursor that is nowhere yet.
func (t bTree[R]) Cursor() cursor[R] {
	at := t.rows.Iter()
	return &at
}
