package mount

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aws/smithy-go"
	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"berth/compute"
)

const (
	fileMode = 0o666 // Whoever the code is executed as may read and write.
	dirMode  = 0o777

	listedFor  = 2 * time.Second // What a list said is not asked again.
	maxListed  = 10_000
	maxMade    = 100_000
	kernelTime = time.Second // The kernel asks again after it.
)

// tree is what the files and directories of one mount share.
type tree struct {
	bucket   *bucket
	blocks   *blocks
	staging  string // A directory for files without names.
	uid, gid uint32

	mu sync.Mutex

	left   int64            // Bytes that may still be staged.
	files  map[string]*file // By key: those whose content is on this disk.
	made   map[string]bool  // Directories that are there without files.
	listed map[string]seen  // What lists said of files.
	broken map[string]error // Files that could not be stored.
}

// seen is an object as a list had it.
type seen struct {
	object object
	until  time.Time
}

// reserve takes some of the bytes that may be staged.
func (t *tree) reserve(n int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > t.left {
		return false
	}
	t.left -= n
	return true
}

func (t *tree) release(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left += n
}

func (t *tree) keep(f *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.files[f.object.key] = f
}

func (t *tree) forget(f *file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files[f.object.key] == f {
		delete(t.files, f.object.key)
	}
}

// failed records that a file could not be stored.
func (t *tree) failed(key string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.broken) < maxListed {
		t.broken[key] = err
	}
}

// succeeded records that a file is stored.
func (t *tree) succeeded(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.broken, key)
	delete(t.listed, key)
}

// head returns an object, as a list had it if that was a moment ago.
func (t *tree) head(ctx context.Context, key string) (object, error) {
	t.mu.Lock()
	known, ok := t.listed[key]
	t.mu.Unlock()
	if ok && time.Now().Before(known.until) {
		return known.object, nil
	}
	return t.bucket.head(ctx, key)
}

// list returns a page of a directory, and remembers its files for a moment.
func (t *tree) list(ctx context.Context, prefix, after string) (entries []fuse.DirEntry, next string, err error) {
	objects, dirs, next, err := t.bucket.list(ctx, prefix, after, pageKeys)
	if err != nil {
		return nil, "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listed) > maxListed {
		clear(t.listed)
	}
	until := time.Now().Add(listedFor)
	for _, o := range objects {
		t.listed[o.key] = seen{o, until}
		entries = append(entries, fuse.DirEntry{Name: o.key[len(prefix):], Mode: fuse.S_IFREG})
	}
	for _, d := range dirs {
		entries = append(entries, fuse.DirEntry{Name: strings.TrimSuffix(d[len(prefix):], "/"), Mode: fuse.S_IFDIR})
	}
	return entries, next, nil
}

// unlisted returns what is directly below a prefix and in no list: new files and
// directories.
func (t *tree) unlisted(prefix string) (entries []fuse.DirEntry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.files {
		if name, below := strings.CutPrefix(key, prefix); below && !strings.Contains(name, "/") {
			entries = append(entries, fuse.DirEntry{Name: name, Mode: fuse.S_IFREG})
		}
	}
	for key := range t.made {
		name, below := strings.CutPrefix(strings.TrimSuffix(key, "/"), prefix)
		if below && name != "" && !strings.Contains(name, "/") {
			entries = append(entries, fuse.DirEntry{Name: name, Mode: fuse.S_IFDIR})
		}
	}
	return entries
}

// lasting makes a directory exist without files. There are not so many of them that
// memory runs out.
func (t *tree) lasting(prefix string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if prefix == "" || len(t.made) >= maxMade {
		return prefix == ""
	}
	t.made[prefix] = true
	return true
}

// saveAll stores what nobody closed, and returns the keys that could not be stored.
func (t *tree) saveAll(ctx context.Context) map[string]error {
	t.mu.Lock()
	var left []*file
	for _, f := range t.files {
		left = append(left, f)
	}
	t.mu.Unlock()
	for _, f := range left {
		f.mu.Lock()
		f.save(ctx)
		f.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken
}

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

// attributes sets what the kernel is told.
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

// Statfs says that there is space: what is left of a quota is only known when a file is
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

// Rmdir implements fs.NodeRmdirer.
func (d *dir) Rmdir(ctx context.Context, name string) syscall.Errno {
	prefix := d.prefix() + name + "/"
	below, err := d.m.bucket.has(ctx, prefix)
	if err != nil {
		return errno(err)
	}
	if below || len(d.m.unlisted(prefix)) > 0 {
		return syscall.ENOTEMPTY
	}
	d.m.mu.Lock()
	defer d.m.mu.Unlock()
	delete(d.m.made, prefix)
	return 0
}

// Unlink implements fs.NodeUnlinker.
func (d *dir) Unlink(ctx context.Context, name string) syscall.Errno {
	key := d.prefix() + name
	if err := d.m.bucket.remove(context.WithoutCancel(ctx), key); err != nil {
		return errno(err)
	}
	d.m.succeeded(key)
	d.m.lasting(d.prefix()) // A directory stays when its last file goes.
	if have := d.GetChild(name); have != nil {
		if f, ok := have.Operations().(*file); ok {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.gone = true
			f.m.forget(f)
		}
	}
	return 0
}

// renameNoReplace is a flag of renameat2.
const renameNoReplace = 1

// Rename copies a file to another key and deletes it. A directory is renamed by those
// who copy what is in it, as mv does.
func (d *dir) Rename(ctx context.Context, name string, into fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to, ok := into.(*dir)
	if !ok || flags&^renameNoReplace != 0 {
		return syscall.EINVAL
	}
	have := d.GetChild(name)
	if have == nil {
		return syscall.ENOENT
	}
	f, ok := have.Operations().(*file)
	if !ok {
		return syscall.EXDEV
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
	d.m.lasting(d.prefix())
	return f.rename(ctx, key)
}

// rename gives a file another key.
func (f *file) rename(ctx context.Context, key string) syscall.Errno {
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

// toErrno returns the error of the file system for one of the bucket or of this disk.
func toErrno(err error) syscall.Errno {
	if bad, ok := errors.AsType[syscall.Errno](err); ok {
		return bad
	}
	return errno(err)
}

// Readdir implements fs.NodeReaddirer.
func (d *dir) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	prefix := d.prefix()
	l := &listing{m: d.m, prefix: prefix, extra: d.m.unlisted(prefix)}
	l.fill(ctx)
	return l, 0
}

// listing reads a directory page by page.
type listing struct {
	m       *tree
	prefix  string
	next    string
	read    bool // The first page.
	extra   []fuse.DirEntry
	entries []fuse.DirEntry
	err     syscall.Errno
}

// fill reads a page. What no list has comes last.
func (l *listing) fill(ctx context.Context) {
	for len(l.entries) == 0 && l.err == 0 && (!l.read || l.next != "") {
		entries, next, err := l.m.list(ctx, l.prefix, l.next)
		l.entries, l.next, l.read, l.err = entries, next, true, errno(err)
		for _, e := range entries {
			l.skip(e.Name)
		}
	}
	if len(l.entries) == 0 && l.err == 0 {
		l.entries, l.extra = l.extra, nil
	}
}

// skip drops a name that a list has.
func (l *listing) skip(name string) {
	for i, e := range l.extra {
		if e.Name == name {
			l.extra = append(l.extra[:i:i], l.extra[i+1:]...)
			return
		}
	}
}

// HasNext implements fs.DirStream.
func (l *listing) HasNext() bool {
	if len(l.entries) == 0 && l.err == 0 {
		ctx, cancel := context.WithTimeout(context.Background(), storeTime)
		defer cancel()
		l.fill(ctx)
	}
	return len(l.entries) > 0 || l.err != 0
}

// Next implements fs.DirStream.
func (l *listing) Next() (fuse.DirEntry, syscall.Errno) {
	if l.err != 0 {
		return fuse.DirEntry{}, l.err
	}
	e := l.entries[0]
	l.entries = l.entries[1:]
	return e, 0
}

// Close implements fs.DirStream.
func (l *listing) Close() {}
