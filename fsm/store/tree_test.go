package store

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// checked checks a tree against the rows that it must have: what it yields, from both sides and from
// anywhere, and how its nodes are filled.
func checked(t *testing.T, x *tree[int, string], want map[int]string, r *rand.Rand) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	if x.rows != len(keys) {
		t.Fatalf("it counts %d rows, want %d", x.rows, len(keys))
	}
	collect := func(visit func(yield func(int, string) bool)) (got []int) {
		visit(func(k int, v string) bool {
			if want[k] != v {
				t.Fatalf("%d is %q, want %q", k, v, want[k])
			}
			got = append(got, k)
			return true
		})
		return got
	}
	if got := collect(func(yield func(int, string) bool) { x.ascend(nil, yield) }); !slices.Equal(got, keys) {
		t.Fatalf("rows %v, want %v", got, keys)
	}
	k := r.IntN(2*keySpace) - keySpace/2
	at, found := slices.BinarySearch(keys, k)
	if got := collect(func(yield func(int, string) bool) { x.ascend(&k, yield) }); !slices.Equal(got, keys[at:]) {
		t.Fatalf("from %d: rows %v, want %v", k, got, keys[at:])
	}
	if v, ok := x.get(k); ok != found || v != want[k] {
		t.Fatalf("%d is %q, %v, want %q, %v", k, v, ok, want[k], found)
	}
	if found {
		at++
	}
	back := slices.Clone(keys[:at])
	slices.Reverse(back)
	if got := collect(func(yield func(int, string) bool) { x.descend(x.root, &k, yield) }); !slices.Equal(got, back) {
		t.Fatalf("down from %d: rows %v, want %v", k, got, back)
	}
	if x.root != nil {
		filled(t, x.root, true)
	}
}

// filled checks the numbers of rows and children of a node and below it, and returns its height.
func filled(t *testing.T, n *treeNode[int, string], root bool) (height int) {
	t.Helper()
	if len(n.keys) != len(n.values) || len(n.keys) > maxRows || len(n.keys) == 0 || !root && len(n.keys) < minRows {
		t.Fatalf("a node has %d keys and %d values", len(n.keys), len(n.values))
	}
	if n.children == nil {
		return 1
	}
	if len(n.children) != len(n.keys)+1 {
		t.Fatalf("a node of %d keys has %d children", len(n.keys), len(n.children))
	}
	for i, child := range n.children {
		h := filled(t, child, false)
		if i > 0 && h != height {
			t.Fatalf("children have the heights %d and %d", height, h)
		}
		height = h
	}
	return height + 1
}

// ownNodes returns the nodes that a tree may change. They must hang below each other: one below a shared node
// would change other trees.
func ownNodes(t *testing.T, x *tree[int, string]) map[*treeNode[int, string]]bool {
	t.Helper()
	own := make(map[*treeNode[int, string]]bool)
	var visit func(n *treeNode[int, string], shared bool)
	visit = func(n *treeNode[int, string], shared bool) {
		if n.owner == x.owner {
			own[n] = true
			if shared {
				t.Fatal("a node of its own is below a shared one")
			}
		}
		for _, child := range n.children {
			visit(child, n.owner != x.owner)
		}
	}
	if x.root != nil {
		visit(x.root, false)
	}
	return own
}

// mustBeApart checks that nothing that one tree may change is in another.
func mustBeApart(t *testing.T, x, other *tree[int, string]) {
	t.Helper()
	own := ownNodes(t, x)
	var visit func(n *treeNode[int, string])
	visit = func(n *treeNode[int, string]) {
		if own[n] {
			t.Fatal("a node that one tree may change is in another")
		}
		for _, child := range n.children {
			visit(child)
		}
	}
	if other.root != nil {
		visit(other.root)
	}
}

const keySpace = 20_000

// TestTree changes a tree at random, and shares it: what one of the two changes is not in the other.
func TestTree(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			x, want := newTree[int, string](cmp.Compare[int]), map[int]string{}
			type version struct {
				tree *tree[int, string]
				want map[int]string
			}
			var shared []version
			for step := range 30 {
				grows := r.IntN(3) > 0 || step < 5
				for range r.IntN(3000) {
					k := r.IntN(keySpace)
					if seed%2 == 1 && grows {
						k = len(want) // Rows at the end, as ids that grow.
					}
					if grows != (r.IntN(8) == 0) {
						want[k] = fmt.Sprint(step, k)
						x.set(k, want[k])
					} else {
						delete(want, k)
						x.remove(k)
					}
				}
				if step == 20 { // Down to nothing.
					for k := range keySpace {
						delete(want, k)
						x.remove(k)
					}
				}
				checked(t, x, want, r)
				if r.IntN(2) == 0 {
					v := version{x.share(), maps.Clone(want)}
					if r.IntN(4) == 0 { // The other one goes on.
						x, v.tree = v.tree, x
					}
					shared = append(shared, v)
				}
			}
			for _, v := range shared {
				checked(t, v.tree, v.want, r)
				mustBeApart(t, x, v.tree)
				mustBeApart(t, v.tree, x)
			}
		})
	}
}

// TestTreeYieldsNoMore ends loops over a tree early.
func TestTreeYieldsNoMore(t *testing.T) {
	x := newTree[int, string](cmp.Compare[int])
	for k := range 1000 {
		x.set(k, "")
	}
	for _, n := range []int{1, 31, 32, 33, 64, 500} {
		up, down := 0, 0
		x.ascend(nil, func(int, string) bool { up++; return up < n })
		x.descend(x.root, nil, func(int, string) bool { down++; return down < n })
		if up != n || down != n {
			t.Errorf("%d rows up and %d down, want %d", up, down, n)
		}
		up, down = 0, 0
		half := 500
		x.ascend(&half, func(int, string) bool { up++; return up < n })
		x.descend(x.root, &half, func(int, string) bool { down++; return down < n })
		if up != n || down != n {
			t.Errorf("from the middle: %d rows up and %d down, want %d", up, down, n)
		}
	}
}

// TestTreeShrinks removes all rows of a tree of several levels, in orders that take from its nodes on
// the left, on the right, in the middle and anywhere. A version from before keeps them all.
func TestTreeShrinks(t *testing.T) {
	const rows = 30_000
	r := rand.New(rand.NewPCG(1, 1))
	middle := make([]int, rows)
	for i := range middle { // The middle, then by turns the rows on its left and on its right.
		if middle[i] = (rows + i) / 2; i%2 == 1 {
			middle[i] = (rows - i - 1) / 2
		}
	}
	up := make([]int, rows)
	for i := range up {
		up[i] = i
	}
	down := slices.Clone(up)
	slices.Reverse(down)
	for name, order := range map[string][]int{"up": up, "down": down, "from the middle": middle, "any": r.Perm(rows)} {
		t.Run(name, func(t *testing.T) {
			x, want := newTree[int, string](cmp.Compare[int]), make(map[int]string, rows)
			for _, k := range r.Perm(rows) {
				want[k] = fmt.Sprint(k)
				x.set(k, want[k])
			}
			if height := filled(t, x.root, true); height < 3 {
				t.Fatalf("the tree has %d levels", height)
			}
			all, before := maps.Clone(want), x.share()
			for i, k := range order {
				delete(want, k)
				x.remove(k)
				x.remove(-1) // Is not there.
				if i%3000 == 0 || i > rows-100 {
					checked(t, x, want, r)
				}
			}
			if x.root != nil {
				t.Error("an empty tree has a node")
			}
			checked(t, before, all, r)
		})
	}
}

// TestFrozenTreeIsRead reads a version of a tree while the tree changes.
func TestFrozenTreeIsRead(t *testing.T) {
	x := newTree[int, string](cmp.Compare[int])
	for k := range 5000 {
		x.set(k, "old")
	}
	frozen := x.share()
	var group sync.WaitGroup
	group.Go(func() {
		for range 20 {
			n := 0
			frozen.ascend(nil, func(k int, v string) bool {
				if k != n || v != "old" {
					t.Errorf("row %d is %d, %q", n, k, v)
					return false
				}
				n++
				return true
			})
			if n != 5000 {
				t.Errorf("%d rows", n)
			}
		}
	})
	for k := range 10_000 {
		x.set(k, "new")
		x.remove(k / 2)
	}
	group.Wait()
}

// TestAbsentRowCopiesNothing removes rows that are not there.
func TestAbsentRowCopiesNothing(t *testing.T) {
	x := newTree[int, string](cmp.Compare[int])
	x.remove(1)
	for k := range 1000 {
		x.set(2*k, "")
	}
	x.share()
	for k := range 1000 {
		x.remove(2*k + 1)
	}
	if own := ownNodes(t, x); len(own) > 0 {
		t.Errorf("%d nodes were copied", len(own))
	}
}
