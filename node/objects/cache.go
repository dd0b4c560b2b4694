package objects

import (
	"container/list"
	"sync"

	"berth/compute"
)

// maxCached is how many chunks the cached manifests have together. Each takes 56 bytes.
const maxCached = 500_000

// cache has manifests that were read. Its methods are safe for concurrent use.
type cache struct {
	mu sync.Mutex

	known  map[compute.Hash]*list.Element
	order  *list.List // Holds cached values, the last used in front.
	weight int
}

type cached struct {
	blob     compute.Hash
	manifest *manifest
}

func (c cached) weight() int { return 4 + len(c.manifest.chunks) }

func newCache() *cache { return &cache{known: make(map[compute.Hash]*list.Element), order: list.New()} }

// get returns a manifest, nil if it is not cached. It must not be changed.
func (c *cache) get(blob compute.Hash) *manifest {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.known[blob]
	if !ok {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(cached).manifest
}

// put caches a manifest in place of those that were used longest ago.
func (c *cache) put(blob compute.Hash, m *manifest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.known[blob]; ok {
		return
	}
	one := cached{blob, m}
	c.known[blob] = c.order.PushFront(one)
	c.weight += one.weight()
	for c.weight > maxCached && c.order.Len() > 1 {
		last := c.order.Remove(c.order.Back()).(cached)
		delete(c.known, last.blob)
		c.weight -= last.weight()
	}
}
