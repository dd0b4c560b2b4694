package mount

import (
	"context"
	"sync"
)

const (
	blockBytes = 4 << 20 // A chunk of an object.
	maxBlocks  = 8       // In memory.
)

// blocks keeps the blocks of objects that were read last.
type blocks struct {
	bucket *bucket

	mu sync.Mutex

	kept []*block // The last one was used last.
}

// block is a part of one version of an object.
type block struct {
	key, etag string
	number    int64
	once      sync.Once
	data      []byte
	err       error
}

// read reads from an object, and returns how many bytes.
func (b *blocks) read(ctx context.Context, o object, into []byte, from int64) (n int, err error) {
	for n < len(into) && from < o.size {
		part, err := b.get(ctx, o, from/blockBytes)
		if err != nil {
			return n, err
		}
		k := copy(into[n:], part[from%blockBytes:])
		n, from = n+k, from+int64(k)
	}
	return n, nil
}

// get returns a block.
func (b *blocks) get(ctx context.Context, o object, number int64) ([]byte, error) {
	found := b.find(o, number)
	found.once.Do(func() {
		data := make([]byte, min(blockBytes, o.size-number*blockBytes))
		if found.err = b.bucket.read(ctx, o, data, number*blockBytes); found.err == nil {
			found.data = data
		}
	})
	if found.err != nil {
		b.drop(found)
	}
	return found.data, found.err
}

// find returns a block, which may have no content yet.
func (b *blocks) find(o object, number int64) *block {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range b.kept {
		if k.key == o.key && k.etag == o.etag && k.number == number {
			b.kept = append(append(b.kept[:i:i], b.kept[i+1:]...), k)
			return k
		}
	}
	if len(b.kept) == maxBlocks {
		b.kept = b.kept[1:]
	}
	made := &block{key: o.key, etag: o.etag, number: number}
	b.kept = append(b.kept, made)
	return made
}

// drop forgets a block that could not be read.
func (b *blocks) drop(bad *block) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range b.kept {
		if k == bad {
			b.kept = append(b.kept[:i:i], b.kept[i+1:]...)
			return
		}
	}
}
