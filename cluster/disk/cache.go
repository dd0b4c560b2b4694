package disk

import (
	"sync"

	"github.com/hashicorp/raft"
)

// Limits of the cache of recent entries.
const (
	cacheEntries = 4096
	cacheBytes   = 16 << 20
)

// Cache keeps the newest entries in memory: replication and application read
// them right after the append. Unlike the library's cache it also has a limit
// in bytes, and it does not wrap the stable store.
type Cache struct {
	raft.LogStore

	mu    sync.RWMutex
	ring  [cacheEntries]*raft.Log // By index modulo its size; low to high without gaps.
	low   uint64
	high  uint64 // 0 if empty.
	bytes int
}

// GetLog reads an entry from memory if cached, else from the store.
func (c *Cache) GetLog(index uint64, l *raft.Log) error {
	c.mu.RLock()
	cached := c.ring[index%cacheEntries]
	c.mu.RUnlock()
	if cached != nil && cached.Index == index {
		*l = *cached
		return nil
	}
	return c.LogStore.GetLog(index, l)
}

// IsMonotonic reports to raft that this store accepts no gaps. Raft then clears
// the log when it installs a snapshot, which may end far beyond the log.
// Implements raft.MonotonicLogStore.
func (c *Cache) IsMonotonic() bool { return true }

// StoreLog appends one entry.
func (c *Cache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries, and caches them after a success.
func (c *Cache) StoreLogs(logs []*raft.Log) error {
	if err := c.LogStore.StoreLogs(logs); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range logs {
		if c.high == 0 || l.Index != c.high+1 {
			c.clear()
			c.low, c.high = l.Index, l.Index-1
		}
		if c.high+1 == c.low+cacheEntries {
			c.dropOldest()
		}
		c.ring[l.Index%cacheEntries] = l
		c.bytes += len(l.Data)
		c.high = l.Index
		for c.bytes > cacheBytes && c.low < c.high {
			c.dropOldest()
		}
	}
	return nil
}

// DeleteRange removes entries from the store. If any of them is cached, it
// clears the cache.
func (c *Cache) DeleteRange(low, high uint64) error {
	c.mu.Lock()
	if high >= c.low {
		c.clear()
	}
	c.mu.Unlock()
	return c.LogStore.DeleteRange(low, high)
}

// dropOldest drops the oldest entry. The caller holds mu.
func (c *Cache) dropOldest() {
	slot := c.low % cacheEntries
	c.bytes -= len(c.ring[slot].Data)
	c.ring[slot] = nil
	c.low++
}

// clear drops all entries. The caller holds mu.
func (c *Cache) clear() {
	c.ring = [cacheEntries]*raft.Log{}
	c.low, c.high, c.bytes = 0, 0, 0
}
