package mount

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// storeTime is how long it may take to store one file.
const storeTime = 10 * time.Minute

// file is a file of the bucket.
type file struct {
	fs.Inode

	m *tree

	// Held while the content is stored, and by whatever must not come between. It is
	// taken before mu, so that whoever asks about a file does not wait for it.
	saving sync.Mutex

	mu sync.Mutex

	object object   // As it is stored, with the key that it has or will have.
	stored bool     // The bucket has it.
	gone   bool     // It was deleted while it was open.
	local  *os.File // Its content on this disk while it is written; nil otherwise.
	size   int64    // Size of local.
	dirty  bool     // The stored content differs from local.
	at     time.Time
	open   int // Handles.
}

// handle is an open file.
type handle struct{ flags uint32 }

// attributes sets what the kernel learns.
func (f *file) attributes(out *fuse.Attr) {
	out.Mode, out.Size, out.Nlink = fuse.S_IFREG|fileMode, uint64(f.object.size), 1
	at := f.object.at
	if f.local != nil {
		out.Size, at = uint64(f.size), f.at
	}
	out.SetTimes(&at, &at, &at)
	out.Blocks, out.Blksize = (out.Size+511)/512, blockBytes
	out.Uid, out.Gid = f.m.uid, f.m.gid
}

// Getattr implements fs.NodeGetattrer.
func (f *file) Getattr(ctx context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local == nil && !f.gone {
		if err := f.refresh(ctx); err != 0 {
			return err
		}
	}
	f.attributes(&out.Attr)
	return 0
}

// refresh learns what others stored.
func (f *file) refresh(ctx context.Context) syscall.Errno {
	o, err := f.m.head(ctx, f.object.key)
	if err != nil {
		return errno(err)
	}
	f.object, f.stored = o, true
	return 0
}

// Setattr changes the size. Other attributes are accepted and have no effect.
func (f *file) Setattr(ctx context.Context, h fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	size, ok := in.GetSize()
	if !ok {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.attributes(&out.Attr)
		return 0
	}
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	err := f.resize(ctx, int64(size))
	if err == 0 && h == nil && f.open == 0 {
		f.mu.Unlock()
		err = f.save(ctx)
		f.mu.Lock()
		f.dropUnused()
	}
	f.attributes(&out.Attr)
	return err
}

// resize sets the size.
func (f *file) resize(ctx context.Context, size int64) syscall.Errno {
	if err := f.stage(ctx, size > 0); err != 0 {
		return err
	}
	if err := f.grow(size); err != 0 {
		return err
	}
	if err := f.local.Truncate(size); err != nil {
		return fs.ToErrno(err)
	}
	f.m.release(f.size - size)
	f.size, f.dirty, f.at = size, true, now()
	return 0
}

// grow reserves what the file needs to be of a size.
func (f *file) grow(size int64) syscall.Errno {
	if size <= f.size {
		return 0
	}
	if bad := f.m.reserve(size - f.size); bad != 0 {
		return bad
	}
	f.size = size
	return 0
}

// stage brings the content to this disk, all of it or none.
func (f *file) stage(ctx context.Context, content bool) syscall.Errno {
	if f.local != nil {
		return 0
	}
	local, err := nameless(f.m.staging)
	if err != nil {
		return fs.ToErrno(err)
	}
	f.local, f.size, f.at = local, 0, now()
	f.m.keep(f)
	if !content || !f.stored {
		return 0
	}
	if bad := f.grow(f.object.size); bad != 0 {
		f.drop()
		return bad
	}
	part := make([]byte, blockBytes)
	for at := int64(0); at < f.object.size; at += blockBytes {
		piece := part[:min(blockBytes, f.object.size-at)]
		if err = f.m.bucket.read(ctx, f.object, piece, at); err == nil {
			_, err = f.local.WriteAt(piece, at)
		}
		if err != nil {
			f.drop()
			return toErrno(err)
		}
	}
	return 0
}

// nameless returns a new file that nothing is left of when it is closed.
func nameless(dir string) (*os.File, error) {
	made, err := os.CreateTemp(dir, "staged-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(made.Name()); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

// drop ends the copy on this disk.
func (f *file) drop() {
	if f.local == nil {
		return
	}
	f.local.Close()
	f.m.release(f.size)
	f.m.forget(f)
	f.local, f.size, f.dirty = nil, 0, false
}

// dropUnused ends the copy on this disk if nobody has the file open.
func (f *file) dropUnused() {
	if f.open == 0 {
		f.drop()
	}
}

// save stores the content if it has changed. The caller holds saving, and not mu. Bytes
// that are written meanwhile are stored the next time.
func (f *file) save(ctx context.Context) syscall.Errno {
	f.mu.Lock()
	key, local, size, at := f.object.key, f.local, f.size, f.at
	needed := f.dirty && !f.gone && local != nil
	f.dirty = f.dirty && !needed
	f.mu.Unlock()
	if !needed {
		return 0
	}
	// Code that is killed interrupts what it waits for.
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	etag, err := f.m.bucket.store(within, key, local, size)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.dirty = true
		f.m.failed(key, err)
		return errno(err)
	}
	f.m.succeeded(key)
	f.object.size, f.object.etag, f.object.at, f.stored = size, etag, at, true
	return 0
}

// Open implements fs.NodeOpener.
func (f *file) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.local == nil && !f.gone {
		o, err := f.m.bucket.head(ctx, f.object.key) // Newer than any list.
		if isNotFound(err) {
			return nil, 0, syscall.ESTALE // The kernel looks for the name again, and makes the file if asked to.
		}
		if err != nil {
			return nil, 0, errno(err)
		}
		f.object, f.stored = o, true
	}
	f.open++
	return &handle{flags}, 0, 0
}

// Read implements fs.NodeReader.
func (f *file) Read(ctx context.Context, _ fs.FileHandle, into []byte, from int64) (fuse.ReadResult, syscall.Errno) {
	f.mu.Lock()
	local, o := f.local, f.object
	if local != nil {
		defer f.mu.Unlock()
		n, err := local.ReadAt(into[:min(int64(len(into)), max(f.size-from, 0))], from)
		if n == 0 && err != nil && from < f.size {
			return nil, fs.ToErrno(err)
		}
		return fuse.ReadResultData(into[:n]), 0
	}
	f.mu.Unlock()
	n, err := f.m.blocks.read(ctx, o, into, from)
	if err != nil {
		return nil, errno(err)
	}
	return fuse.ReadResultData(into[:n]), 0
}

// Write implements fs.NodeWriter.
func (f *file) Write(ctx context.Context, h fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stage(ctx, true); err != 0 {
		return 0, err
	}
	if open, ok := h.(*handle); ok && open.flags&syscall.O_APPEND != 0 {
		at = f.size
	}
	if err := f.grow(at + int64(len(data))); err != 0 {
		return 0, err
	}
	n, err := f.local.WriteAt(data, at)
	f.dirty, f.at = true, now()
	return uint32(n), fs.ToErrno(err)
}

// Flush stores the content when a descriptor is closed, so that close says whether that
// worked. A new file that is still empty is stored once nobody has it open: as a rule,
// it is about to be written.
func (f *file) Flush(ctx context.Context, _ fs.FileHandle) syscall.Errno {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	fresh := f.size == 0 && !f.stored
	f.mu.Unlock()
	if fresh {
		return 0
	}
	return f.save(ctx)
}

// Fsync stores the content.
func (f *file) Fsync(ctx context.Context, _ fs.FileHandle, _ uint32) syscall.Errno {
	f.saving.Lock()
	defer f.saving.Unlock()
	return f.save(ctx)
}

// Release ends a handle.
func (f *file) Release(ctx context.Context, _ fs.FileHandle) (err syscall.Errno) {
	f.saving.Lock()
	defer f.saving.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open--; f.open == 0 {
		f.mu.Unlock()
		err = f.save(ctx)
		f.mu.Lock()
		f.dropUnused()
	}
	return err
}

// Allocate makes the file as large as asked for.
func (f *file) Allocate(ctx context.Context, _ fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if mode != 0 {
		return syscall.ENOTSUP
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stage(ctx, true); err != 0 {
		return err
	}
	if end := int64(off + size); end > f.size {
		return f.resize(ctx, end)
	}
	return 0
}
