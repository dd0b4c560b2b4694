package archives

import (
	"container/list"
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/archive"
	"berth/node/storage"
)

// Times and limits of the cache.
const (
	readTimeout   = time.Minute // For one archive.
	openArchives  = 64 << 20    // Bytes of open archives on a server.
	openingAtOnce = 4           // Archives that are read and unpacked at a time, of some MiB each.
)

// Cache reads archives and keeps some of them open. It is safe for concurrent
// use.
type Cache struct {
	get     Get
	life    context.Context //nolint:containedctx // Ends with Close: a read belongs to no single request.
	end     context.CancelFunc
	opening singleflight.Group
	reading *semaphore.Weighted // One token per archive that is being read and unpacked.

	mu    sync.Mutex
	bytes int
	byUse *list.List // Holds *openArchive values, the most recently used first.
	open  map[compute.Hash]*list.Element
}

// openArchive is an archive that was read.
type openArchive struct {
	blob compute.Hash
	file *archive.File
}

// Get returns a blob from this disk or from another server.
type Get func(ctx context.Context, hash compute.Hash) ([]byte, error)

// NewCache returns a cache of the archives that get returns.
func NewCache(get Get) *Cache {
	life, end := context.WithCancel(context.Background())
	return &Cache{
		get: get, life: life, end: end, byUse: list.New(), open: make(map[compute.Hash]*list.Element),
		reading: semaphore.NewWeighted(openingAtOnce),
	}
}

// Close ends the running reads.
func (c *Cache) Close() error {
	c.end()
	return nil
}

// Open returns the content of an archive, read from this disk or, unless the context stays here,
// from another server. The code is unavailable, with the detail archive_missing when no
// server has the blob, and archive_unreadable otherwise.
func (c *Cache) Open(ctx context.Context, row *archive.Record) (*archive.File, error) {
	if file := c.known(row.Blob); file != nil {
		return file, nil
	}
	if compute.MayAsk(ctx) != nil { // Others may join the read below, and want it from anywhere.
		file, err := c.read(ctx, row)
		if err != nil {
			return nil, Unreadable(row, err)
		}
		return file, nil
	}
	read := c.opening.DoChan(string(row.Blob[:]), func() (any, error) { // No request owns the read.
		ctx, cancel := context.WithTimeout(c.life, readTimeout)
		defer cancel()
		file, err := c.read(ctx, row)
		if err != nil {
			return nil, Unreadable(row, err)
		}
		c.keep(row.Blob, file)
		return file, nil
	})
	select {
	case r := <-read:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*archive.File), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read waits for a token, then reads and unpacks an archive.
func (c *Cache) read(ctx context.Context, row *archive.Record) (*archive.File, error) {
	if err := c.reading.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.reading.Release(1)
	data, err := c.get(ctx, row.Blob)
	if err != nil {
		return nil, err
	}
	return archive.Read(row, data)
}

// Unreadable returns the error for an archive whose blob cannot be read.
func Unreadable(row *archive.Record, err error) error {
	name := storage.Name(row.Blob)
	if compute.CodeOf(err) == compute.CodeNotFound {
		return compute.Errorf(compute.CodeUnavailable,
			"Executions that ended in %s are in an archive that no server has: copy blobs/%s/%s into the data directory of one.",
			archive.MonthText(row.Month), name[:2], name).Named("archive_missing")
	}
	return compute.Errorf(compute.CodeUnavailable,
		"Executions that ended in %s are in archive %s, which cannot be read now: %w",
		archive.MonthText(row.Month), name, err).
		Named("archive_unreadable").Retry(2 * time.Second)
}

// known returns an open archive, nil for none.
func (c *Cache) known(blob compute.Hash) *archive.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.open[blob]
	if !ok {
		return nil
	}
	c.byUse.MoveToFront(e)
	return e.Value.(*openArchive).file
}

// keep keeps an archive open and closes the least recently used ones.
func (c *Cache) keep(blob compute.Hash, file *archive.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.open[blob]; ok {
		return
	}
	c.open[blob] = c.byUse.PushFront(&openArchive{blob, file})
	c.bytes += file.Size()
	for c.bytes > openArchives && c.byUse.Len() > 1 {
		last := c.byUse.Remove(c.byUse.Back()).(*openArchive)
		delete(c.open, last.blob)
		c.bytes -= last.file.Size()
	}
}

// With returns view with the archived execution id and its records. It returns
// view itself when no archive has the execution.
func (c *Cache) With(ctx context.Context, view *fsm.View, id compute.ExecutionID) (*fsm.View, error) {
	return view.LoadArchived(compute.OrgID{}, id, func(row *archive.Record) (*archive.File, error) {
		return c.Open(ctx, row)
	})
}
