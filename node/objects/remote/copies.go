package remote

import (
	"context"
	"time"

	"gocloud.dev/blob"

	"berth/compute"
)

// Copies is a directory of a store that has data under names of the caller, as package
// mirror wants it. Sweeps of blobs leave it alone. Its methods are safe for concurrent use.
type Copies struct{ store *Store }

// Copies returns the directory of the store.
func (s *Store) Copies() Copies { return Copies{s} }

// Put keeps data, and returns when the store says that it has it.
func (c Copies) Put(ctx context.Context, name compute.Hash, data []byte) error {
	return c.store.write(ctx, copyDir+nameOf(name), data)
}

// Get returns the data of a name. The code is not_found if there is none.
func (c Copies) Get(ctx context.Context, name compute.Hash) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	data, err := c.store.bucket.ReadAll(ctx, copyDir+nameOf(name))
	if err != nil {
		return nil, failed("get", err)
	}
	return data, nil
}

// All returns when the data of each name was put.
func (c Copies) All(ctx context.Context) (map[compute.Hash]time.Time, error) {
	all := make(map[compute.Hash]time.Time)
	err := c.store.each(ctx, copyDir, func(name compute.Hash, o *blob.ListObject) error {
		all[name] = o.ModTime
		return nil
	})
	return all, err
}

// Delete removes the data of a name. It succeeds if there is none.
func (c Copies) Delete(ctx context.Context, name compute.Hash) error {
	if err := c.store.claim(ctx); err != nil {
		return err
	}
	return c.store.remove(ctx, copyDir+nameOf(name))
}
