package remote

import (
	"context"
	"time"

	"gocloud.dev/blob"

	"berth/compute"
)

const (
	mirrorDir      = "mirror/"
	mirrorTrashDir = "mirror-trash/"
)

// Copies is a part of a store that has data under names of the caller, as package mirror
// wants it. Sweeps of blobs leave it alone. Its methods are safe for concurrent use.
type Copies struct{ store *Store }

// Copies returns that part of the store.
func (s *Store) Copies() Copies { return Copies{s} }

// Put keeps data, and returns when the store says that it has it.
func (c Copies) Put(ctx context.Context, name compute.Hash, data []byte) error {
	return c.store.write(ctx, mirrorDir+nameOf(name), data)
}

// Get returns the data of a name, from the trash too. The code is not_found if there is none.
func (c Copies) Get(ctx context.Context, name compute.Hash) ([]byte, error) {
	return c.store.read(ctx, mirrorDir+nameOf(name), mirrorTrashDir+nameOf(name))
}

// All returns when the data of each name was put.
func (c Copies) All(ctx context.Context) (map[compute.Hash]time.Time, error) {
	return c.list(ctx, mirrorDir)
}

// Trash returns when each name was discarded.
func (c Copies) Trash(ctx context.Context) (map[compute.Hash]time.Time, error) {
	return c.list(ctx, mirrorTrashDir)
}

func (c Copies) list(ctx context.Context, dir string) (map[compute.Hash]time.Time, error) {
	all := make(map[compute.Hash]time.Time)
	err := c.store.each(ctx, dir, func(name compute.Hash, o *blob.ListObject) error {
		all[name] = o.ModTime
		return nil
	})
	return all, err
}

// Discard moves the data of a name to the trash.
func (c Copies) Discard(ctx context.Context, name compute.Hash) error {
	return c.move(ctx, mirrorDir, mirrorTrashDir, name)
}

// Restore moves the data of a name back from the trash.
func (c Copies) Restore(ctx context.Context, name compute.Hash) error {
	return c.move(ctx, mirrorTrashDir, mirrorDir, name)
}

func (c Copies) move(ctx context.Context, from, to string, name compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := c.store.claim(ctx); err != nil {
		return err
	}
	return c.store.move(ctx, from, to, name)
}

// Delete deletes the data of a name from the trash. It succeeds if there is none.
func (c Copies) Delete(ctx context.Context, name compute.Hash) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := c.store.claim(ctx); err != nil {
		return err
	}
	return c.store.remove(ctx, mirrorTrashDir+nameOf(name))
}
