package mount

import (
	"context"
	"errors"
	"syscall"

	"github.com/aws/smithy-go"
	"github.com/hanwen/go-fuse/v2/fs"

	"berth/compute"
)

// renameNoReplace is a flag of renameat2.
const renameNoReplace = 1

// Rename copies a file to another key and deletes it. Directories cannot be renamed:
// programs such as mv copy their files.
func (d *dir) Rename(
	ctx context.Context, name string, into fs.InodeEmbedder, newName string, flags uint32,
) syscall.Errno {
	to, ok := into.(*dir)
	if !ok || flags&^renameNoReplace != 0 {
		return syscall.EINVAL
	}
	f := d.fileAt(name)
	if f == nil && d.GetChild(name) != nil {
		return syscall.EXDEV
	}
	if f == nil {
		return syscall.ENOENT
	}
	key := to.prefix() + newName
	if compute.BadObjectKey(key) != "" {
		return syscall.EINVAL
	}
	ctx = context.WithoutCancel(ctx) // Half of it helps nobody.
	if flags&renameNoReplace != 0 {
		if _, err := d.m.bucket.head(ctx, key); err == nil {
			return syscall.EEXIST
		} else if !isNotFound(err) {
			return errno(err)
		}
	}
	if over := to.fileAt(newName); over != nil && over != f {
		over.saving.Lock()
		over.mu.Lock()
		over.leave() // Open handles do not store it any more.
		over.mu.Unlock()
		over.saving.Unlock()
	}
	d.m.lasting(d.prefix())
	return f.rename(ctx, key)
}

// rename gives a file another key.
func (f *file) rename(ctx context.Context, key string) syscall.Errno {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.object.key
	if f.local == nil || !f.dirty {
		if err := f.m.bucket.copy(ctx, old, key); err != nil {
			return errno(err)
		}
	} else if _, err := f.m.bucket.store(ctx, key, f.local, f.size); err != nil {
		return errno(err)
	}
	if f.stored {
		if err := f.m.bucket.remove(ctx, old); err != nil {
			return errno(err)
		}
	}
	f.m.succeeded(old)
	f.m.succeeded(key)
	f.m.forget(f)
	f.object.key = key
	if f.local != nil {
		f.m.keep(f)
		f.dirty = false
	}
	o, err := f.m.bucket.head(ctx, key)
	if err != nil {
		return errno(err)
	}
	f.object, f.stored = o, true
	return 0
}

// isNotFound reports whether the bucket has no such object.
func isNotFound(err error) bool {
	_, ok := errors.AsType[smithy.APIError](err)
	return ok && errno(err) == syscall.ENOENT
}
