package trees

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"sync"

	"berth/compute"
)

// maxWeight is how many entries and chunks the cached trees have together. Each
// takes up to some hundred bytes.
const maxWeight = 200_000

// Get returns a blob.
type Get func(ctx context.Context, hash compute.Hash) ([]byte, error)

// Cache reads trees. Its methods are safe for concurrent use.
type Cache struct {
	get Get

	mu sync.Mutex

	known  map[compute.Hash]*list.Element
	order  *list.List // Elements are *cached; the last used in front.
	weight int
}

// cached is a tree in a Cache. It never changes.
type cached struct {
	manifest compute.Hash
	tree     *compute.Tree
	numbers  map[compute.Hash]int // Numbers of its chunks.
	weight   int
}

// New returns an empty cache of the trees whose manifests get returns.
func New(get Get) *Cache {
	return &Cache{get: get, known: make(map[compute.Hash]*list.Element), order: list.New()}
}

// Tree returns the tree with a manifest. It is shared and must not be changed. The
// codes of errors are those of the function of New.
func (c *Cache) Tree(ctx context.Context, manifest compute.Hash) (*compute.Tree, error) {
	known, err := c.read(ctx, manifest)
	if err != nil {
		return nil, err
	}
	return known.tree, nil
}

// Numbers returns the numbers of the chunks of a tree in the order of Tree.Chunks.
// It is shared and must not be changed. The codes of errors are Tree's.
func (c *Cache) Numbers(ctx context.Context, manifest compute.Hash) (map[compute.Hash]int, error) {
	known, err := c.read(ctx, manifest)
	if err != nil {
		return nil, err
	}
	return known.numbers, nil
}

// read returns a tree, from the cache if it is there.
func (c *Cache) read(ctx context.Context, manifest compute.Hash) (*cached, error) {
	if known := c.find(manifest); known != nil {
		return known, nil
	}
	data, err := c.get(ctx, manifest)
	if err != nil {
		return nil, err
	}
	tree, err := compute.DecodeTree(data)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", compute.Digest(manifest), err)
	}
	made := &cached{manifest: manifest, tree: tree, numbers: make(map[compute.Hash]int)}
	for chunk := range tree.Chunks() {
		made.numbers[chunk] = len(made.numbers)
	}
	made.weight = 1 + len(tree.Entries) + len(made.numbers)
	c.keep(made)
	return made, nil
}

// find returns a cached tree, nil for none.
func (c *Cache) find(manifest compute.Hash) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.known[manifest]
	if !ok {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(*cached)
}

// keep caches a tree in place of those that were used longest ago.
func (c *Cache) keep(made *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[made.manifest]; ok {
		return
	}
	c.known[made.manifest] = c.order.PushFront(made)
	c.weight += made.weight
	for c.weight > maxWeight && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.known, last.manifest)
		c.weight -= last.weight
	}
}

// Unread is a manifest that could not be read.
type Unread struct {
	Manifest compute.Hash
	Err      error
}

// Live returns the blobs that manifests need: themselves and the chunks that they
// name. It also returns the manifests that could not be read, whose chunks are
// unknown.
func (c *Cache) Live(
	ctx context.Context, manifests iter.Seq[compute.Hash],
) (live map[compute.Hash]bool, unread []Unread) {
	live = make(map[compute.Hash]bool)
	for manifest := range manifests {
		if live[manifest] {
			continue
		}
		live[manifest] = true
		numbers, err := c.Numbers(ctx, manifest)
		if err != nil {
			unread = append(unread, Unread{manifest, err})
			continue
		}
		for chunk := range numbers {
			live[chunk] = true
		}
	}
	return live, unread
}
