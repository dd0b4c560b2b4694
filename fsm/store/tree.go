package store

import "slices"

// Rows of a node of a tree. All but the root have at least minRows.
const (
	maxRows = 63
	minRows = maxRows / 2

	treeDepth = 10 // A higher tree has more rows than memory has room for.
)

// tree is an ordered map whose copies cost nothing: a B-tree (Bayer and McCreight, 1972) whose nodes
// are shared until one of the trees that have them changes. Only what tables need is here, because Go
// compiles each method for each type of rows. Keys and values lie apart, so that a search reads keys
// alone.
type tree[K, V any] struct {
	compare func(a, b K) int
	root    *treeNode[K, V] // Nil without rows.
	rows    int
	owner   *owner
}

// owner says to which tree a node belongs. Nodes of other owners are shared, and never changed.
type owner struct{ _ byte } // Owners differ by their addresses, which an empty type need not.

// treeNode has rows by key. Before, between and behind them are its children, if it is no leaf.
type treeNode[K, V any] struct {
	owner    *owner
	keys     []K
	values   []V
	children []*treeNode[K, V]
}

func newTree[K, V any](compare func(a, b K) int) *tree[K, V] {
	return &tree[K, V]{compare: compare, owner: new(owner)}
}

// share returns a tree with the same rows. Each of the two copies what it changes.
func (t *tree[K, V]) share() *tree[K, V] {
	other := *t
	t.owner, other.owner = new(owner), new(owner)
	return &other
}

// search returns the place in a node of the first key that is not before k, and whether it is k.
func (t *tree[K, V]) search(n *treeNode[K, V], k K) (at int, found bool) {
	low, high := 0, len(n.keys)
	for low < high {
		mid := (low + high) / 2
		switch c := t.compare(n.keys[mid], k); {
		case c == 0:
			return mid, true
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	return low, false
}

// get returns the value at k.
func (t *tree[K, V]) get(k K) (v V, ok bool) {
	for n := t.root; n != nil; {
		at, found := t.search(n, k)
		if found {
			return n.values[at], true
		}
		if n.children == nil {
			break
		}
		n = n.children[at]
	}
	return v, false
}

// own returns a node that the tree may change: n itself, or a copy.
func (t *tree[K, V]) own(n *treeNode[K, V]) *treeNode[K, V] {
	if n.owner == t.owner {
		return n
	}
	own := &treeNode[K, V]{
		owner: t.owner,
		keys:  append(make([]K, 0, cap(n.keys)), n.keys...), values: append(make([]V, 0, cap(n.values)), n.values...),
	}
	if n.children != nil {
		own.children = append(make([]*treeNode[K, V], 0, cap(n.children)), n.children...)
	}
	return own
}

// ownChild is own for a child, which takes its place.
func (t *tree[K, V]) ownChild(n *treeNode[K, V], at int) *treeNode[K, V] {
	child := t.own(n.children[at])
	n.children[at] = child
	return child
}

// set stores v at k. Full nodes on the way are split, so that each has room for a row of its child.
func (t *tree[K, V]) set(k K, v V) {
	switch {
	case t.root == nil:
		t.root = &treeNode[K, V]{owner: t.owner}
	case len(t.root.keys) == maxRows:
		t.root = &treeNode[K, V]{owner: t.owner, children: []*treeNode[K, V]{t.root}}
		t.split(t.root, 0)
	default:
		t.root = t.own(t.root)
	}
	for n := t.root; ; {
		at, found := t.search(n, k)
		switch {
		case found:
			n.keys[at], n.values[at] = k, v
			return
		case n.children == nil:
			n.keys, n.values = slices.Insert(n.keys, at, k), slices.Insert(n.values, at, v)
			t.rows++
			return
		case len(n.children[at].keys) == maxRows:
			t.split(n, at) // One of its rows is now in n.
		default:
			n = t.ownChild(n, at)
		}
	}
}

// split divides a full child. The row in its middle moves up into n, between the halves. Both get
// slices of their size: where keys grow, nothing comes to the left one any more.
func (t *tree[K, V]) split(n *treeNode[K, V], at int) {
	full := n.children[at]
	left, right := &treeNode[K, V]{owner: t.owner}, &treeNode[K, V]{owner: t.owner}
	left.keys, right.keys = slices.Clone(full.keys[:minRows]), slices.Clone(full.keys[minRows+1:])
	left.values, right.values = slices.Clone(full.values[:minRows]), slices.Clone(full.values[minRows+1:])
	if full.children != nil {
		left.children = slices.Clone(full.children[:minRows+1])
		right.children = slices.Clone(full.children[minRows+1:])
	}
	n.keys = slices.Insert(n.keys, at, full.keys[minRows])
	n.values = slices.Insert(n.values, at, full.values[minRows])
	n.children[at] = left
	n.children = slices.Insert(n.children, at+1, right)
}

// remove removes the row at k, if there is one.
func (t *tree[K, V]) remove(k K) {
	if _, ok := t.get(k); !ok {
		return // Nothing is copied for that.
	}
	t.root = t.own(t.root)
	t.removeIn(t.root, &k)
	t.rows--
	if len(t.root.keys) > 0 {
		return
	}
	if t.root.children != nil {
		t.root = t.root.children[0]
	} else {
		t.root = nil
	}
}

// removeIn removes the row at k, the last one for nil, below n or in it, and returns it. Children on
// the way get more rows than they must have, so that each can lose one.
func (t *tree[K, V]) removeIn(n *treeNode[K, V], k *K) (key K, value V) {
	for {
		at, found := len(n.keys), false
		if k != nil {
			at, found = t.search(n, *k)
		}
		switch {
		case n.children == nil:
			if k == nil {
				at--
			}
			key, value = n.keys[at], n.values[at]
			n.keys, n.values = slices.Delete(n.keys, at, at+1), slices.Delete(n.values, at, at+1)
			return key, value
		case len(n.children[at].keys) <= minRows:
			t.fill(n, at)
		case found:
			key, value = n.keys[at], n.values[at]
			n.keys[at], n.values[at] = t.removeIn(t.ownChild(n, at), nil)
			return key, value
		default:
			n = t.ownChild(n, at)
		}
	}
}

// fill gives a child a row more: one of a neighbour, or all of one, which is then gone.
func (t *tree[K, V]) fill(n *treeNode[K, V], at int) {
	switch {
	case at > 0 && len(n.children[at-1].keys) > minRows:
		left, child := t.ownChild(n, at-1), t.ownChild(n, at)
		last := len(left.keys) - 1
		child.keys, child.values = slices.Insert(child.keys, 0, n.keys[at-1]), slices.Insert(child.values, 0, n.values[at-1])
		n.keys[at-1], n.values[at-1] = left.keys[last], left.values[last]
		left.keys, left.values = slices.Delete(left.keys, last, last+1), slices.Delete(left.values, last, last+1)
		if left.children != nil {
			child.children = slices.Insert(child.children, 0, left.children[last+1])
			left.children = slices.Delete(left.children, last+1, last+2)
		}
	case at < len(n.keys) && len(n.children[at+1].keys) > minRows:
		child, right := t.ownChild(n, at), t.ownChild(n, at+1)
		child.keys, child.values = append(child.keys, n.keys[at]), append(child.values, n.values[at])
		n.keys[at], n.values[at] = right.keys[0], right.values[0]
		right.keys, right.values = slices.Delete(right.keys, 0, 1), slices.Delete(right.values, 0, 1)
		if right.children != nil {
			child.children = append(child.children, right.children[0])
			right.children = slices.Delete(right.children, 0, 1)
		}
	default:
		at = min(at, len(n.keys)-1)
		left, right := t.ownChild(n, at), n.children[at+1]
		left.keys = append(append(left.keys, n.keys[at]), right.keys...)
		left.values = append(append(left.values, n.values[at]), right.values...)
		left.children = append(left.children, right.children...)
		n.keys, n.values = slices.Delete(n.keys, at, at+1), slices.Delete(n.values, at, at+1)
		n.children = slices.Delete(n.children, at+1, at+2)
	}
}

// cursor is a row of a tree, which must not change meanwhile, or the end behind all rows.
type cursor[K, V any] struct {
	path  [treeDepth]place[K, V] // From the root to the row.
	depth int                    // 0 at the end.
}

// place is a row in a node. The rows of its children up to that row were passed.
type place[K, V any] struct {
	node *treeNode[K, V]
	at   int
}

// from returns the first row that is not before k, the first one for nil.
func (t *tree[K, V]) from(k *K) (c cursor[K, V]) {
	for n := t.root; n != nil; {
		at, found := 0, false
		if k != nil {
			at, found = t.search(n, *k)
		}
		c.path[c.depth] = place[K, V]{n, at}
		c.depth++
		if found || n.children == nil {
			break
		}
		n = n.children[at]
	}
	c.climb()
	return c
}

// climb leaves nodes whose rows were all passed.
func (c *cursor[K, V]) climb() {
	for c.depth > 0 && c.path[c.depth-1].at == len(c.path[c.depth-1].node.keys) {
		c.depth--
	}
}

// row returns the row of the cursor, false at the end.
func (c *cursor[K, V]) row() (k K, v V, ok bool) {
	if c.depth == 0 {
		return k, v, false
	}
	p := &c.path[c.depth-1]
	return p.node.keys[p.at], p.node.values[p.at], true
}

// next moves to the next row.
func (c *cursor[K, V]) next() {
	p := &c.path[c.depth-1]
	p.at++
	for n := p.node; n.children != nil; {
		at := c.path[c.depth-1].at
		n = n.children[at]
		c.path[c.depth] = place[K, V]{n, 0}
		c.depth++
	}
	c.climb()
}

// ascend yields the rows from k on, all for nil, until yield returns false.
func (t *tree[K, V]) ascend(k *K, yield func(K, V) bool) {
	c := t.from(k)
	for {
		key, value, ok := c.row()
		if !ok || !yield(key, value) {
			return
		}
		c.next()
	}
}

// descend yields the rows of a node and below it, from k down, all for nil. It reports false once
// yield has.
func (t *tree[K, V]) descend(n *treeNode[K, V], k *K, yield func(K, V) bool) bool {
	if n == nil {
		return true
	}
	at, found := len(n.keys), false
	if k != nil {
		at, found = t.search(n, *k)
	}
	if found {
		if !yield(n.keys[at], n.values[at]) {
			return false
		}
		k = nil // All rows below are before it.
	}
	for {
		if n.children != nil && !t.descend(n.children[at], k, yield) {
			return false
		}
		if k = nil; at == 0 {
			return true
		}
		if at--; !yield(n.keys[at], n.values[at]) {
			return false
		}
	}
}
