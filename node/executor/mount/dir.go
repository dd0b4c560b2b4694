package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/compute"
)

// dir is a directory: a prefix of keys.
type dir struct {
	fs.Inode

	m *tree
}

// prefix returns that of the keys below d.
func (d *dir) prefix() string {
	if name := d.Path(d.Root()); name != "" {
		return name + "/"
	}
	return ""
}

// attributes sets what the kernel learns.
func (d *dir) attributes(out *fuse.Attr) {
	out.Mode, out.Nlink, out.Uid, out.Gid = fuse.S_IFDIR|dirMode, 1, d.m.uid, d.m.gid
}

// Getattr implements fs.NodeGetattrer.
func (d *dir) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.attributes(&out.Attr)
	return 0
}

// Setattr accepts attributes, which have no effect.
func (d *dir) Setattr(_ context.Context, _ fs.FileHandle, _ *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	d.attributes(&out.Attr)
	return 0
}

// Statfs reports free space, because the rest of a quota is only known when a file is
// stored.
func (d *dir) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.NameLen = blockBytes, blockBytes, compute.MaxObjectKey
	out.Blocks, out.Bfree, out.Bavail = 1<<28, 1<<28, 1<<28
	out.Files, out.Ffree = 1<<32, 1<<32
	return 0
}

// Lookup implements fs.NodeLookuper.
func (d *dir) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	key := d.prefix() + name
	if compute.BadObjectKey(key) != "" {
		return nil, syscall.ENOENT
	}
	d.m.mu.Lock()
	local, made := d.m.files[key], d.m.made[key+"/"]
	d.m.mu.Unlock()
	if local != nil {
		local.mu.Lock()
		defer local.mu.Unlock()
		local.attributes(&out.Attr)
		return local.EmbeddedInode(), 0
	}
	if made {
		return d.child(ctx, name, out), 0
	}
	o, err := d.m.head(ctx, key)
	if err == nil {
		return d.fileOf(ctx, name, o, out), 0
	}
	if bad := errno(err); bad != syscall.ENOENT {
		return nil, bad
	}
	below, err := d.m.bucket.has(ctx, key+"/")
	if err != nil || !below {
		return nil, max(errno(err), boolErrno(err == nil, syscall.ENOENT))
	}
	return d.child(ctx, name, out), 0
}

// boolErrno returns an error if it holds.
func boolErrno(holds bool, e syscall.Errno) syscall.Errno {
	if holds {
		return e
	}
	return 0
}

// fileOf returns the inode of a file that is stored.
func (d *dir) fileOf(ctx context.Context, name string, o object, out *fuse.EntryOut) *fs.Inode {
	if have := d.GetChild(name); have != nil {
		if f, ok := have.Operations().(*file); ok {
			f.mu.Lock()
			defer f.mu.Unlock()
			if !f.gone {
				f.object, f.stored = o, true
				f.attributes(&out.Attr)
				return have
			}
		}
	}
	f := &file{m: d.m, object: o, stored: true}
	f.attributes(&out.Attr)
	return d.NewInode(ctx, f, fs.StableAttr{Mode: fuse.S_IFREG})
}

// child returns the inode of a directory.
func (d *dir) child(ctx context.Context, name string, out *fuse.EntryOut) *fs.Inode {
	if have := d.GetChild(name); have != nil {
		if c, ok := have.Operations().(*dir); ok {
			c.attributes(&out.Attr)
			return have
		}
	}
	c := &dir{m: d.m}
	c.attributes(&out.Attr)
	return d.NewInode(ctx, c, fs.StableAttr{Mode: fuse.S_IFDIR})
}

// Create implements fs.NodeCreater.
func (d *dir) Create(
	ctx context.Context, name string, flags, _ uint32, out *fuse.EntryOut,
) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	key := d.prefix() + name
	if bad := compute.BadObjectKey(key); bad != "" {
		return nil, nil, 0, syscall.EINVAL
	}
	f := &file{m: d.m, object: object{key: key}, open: 1}
	if err := f.stage(ctx, false); err != 0 {
		return nil, nil, 0, err
	}
	f.dirty = true
	f.attributes(&out.Attr)
	return d.NewInode(ctx, f, fs.StableAttr{Mode: fuse.S_IFREG}), &handle{flags}, 0, 0
}

// Mkdir implements fs.NodeMkdirer.
func (d *dir) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	key := d.prefix() + name
	if compute.BadObjectKey(key) != "" {
		return nil, syscall.EINVAL
	}
	if !d.m.lasting(key + "/") {
		return nil, syscall.ENOSPC
	}
	return d.child(ctx, name, out), 0
}

// Rmdir implements fs.NodeRmdirer. It deletes the object with which other clients make an
// empty folder, whose key is the prefix.
func (d *dir) Rmdir(ctx context.Context, name string) syscall.Errno {
	prefix := d.prefix() + name + "/"
	objects, dirs, _, err := d.m.bucket.list(ctx, prefix, "", 2)
	if err != nil {
		return errno(err)
	}
	marked := len(objects) > 0 && objects[0].key == prefix
	if len(dirs) > 0 || len(objects) > 1 || len(objects) == 1 && !marked || len(d.m.unlisted(prefix)) > 0 {
		return syscall.ENOTEMPTY
	}
	if marked {
		if err := d.m.bucket.remove(context.WithoutCancel(ctx), prefix); err != nil {
			return errno(err)
		}
		d.m.lasting(d.prefix()) // As where the last file goes.
	}
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	delete(d.m.made, prefix)
	return 0
}

// Unlink implements fs.NodeUnlinker.
func (d *dir) Unlink(ctx context.Context, name string) syscall.Errno {
	f := d.fileAt(name)
	if f != nil {
		f.saving.Lock() // Open handles do not store it any more.
		defer f.saving.Unlock()
		f.mu.Lock()
		defer f.mu.Unlock()
	}
	key := d.prefix() + name
	if err := d.m.bucket.remove(context.WithoutCancel(ctx), key); err != nil {
		return errno(err)
	}
	d.m.succeeded(key)
	d.m.lasting(d.prefix()) // A directory stays when its last file goes.
	if f != nil {
		f.leave()
	}
	return 0
}

// fileAt returns the file that the kernel knows by a name, nil for none.
func (d *dir) fileAt(name string) *file {
	if have := d.GetChild(name); have != nil {
		f, _ := have.Operations().(*file)
		return f
	}
	return nil
}

// leave makes f a file without a name, for those who have it open.
func (f *file) leave() {
	f.gone = true
	f.m.forget(f)
}
