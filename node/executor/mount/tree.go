package mount

import (
	"context"
	"maps"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

const (
	fileMode = 0o666 // Any user as which the code is executed may read and write.
	dirMode  = 0o777

	listedFor  = 2 * time.Second // A list is valid for so long.
	maxListed  = 10_000
	maxMade    = 100_000
	kernelTime = time.Second // The kernel asks again after it.

	checkEach = 16 << 20 // The free space of the disk is checked for as many bytes,
	keepFree  = 2 << 30  // and so much stays free, or a tenth of a small disk.
)

// tree is shared by the files and directories of one mount.
type tree struct {
	bucket   *bucket
	blocks   *blocks
	staging  string // A directory for files without names.
	uid, gid uint32

	mu sync.Mutex

	left      int64            // Bytes that may still be staged,
	unchecked int64            // and how many were since the last check of the free space.
	files     map[string]*file // By key: those whose content is on this disk.
	made      map[string]bool  // Directories that are there without files.
	listed    map[string]seen  // Files as lists described them.
	broken    map[string]error // Files that could not be stored.
}

// seen is an object as a list had it.
type seen struct {
	object object
	until  time.Time
}

// reserve takes some of the bytes that may be staged, of which this disk keeps some
// free for others.
func (t *tree) reserve(n int64) syscall.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > t.left {
		return syscall.ENOSPC
	}
	if t.unchecked += n; t.unchecked >= checkEach {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(t.staging, &disk); err != nil {
			return fs.ToErrno(err)
		}
		if int64(disk.Bavail)*disk.Bsize-t.unchecked < min(keepFree, int64(disk.Blocks)*disk.Bsize/10) {
			return syscall.ENOSPC
		}
		t.unchecked = 0
	}
	t.left -= n
	return 0
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
	if ok && now().Before(known.until) {
		return known.object, nil
	}
	return t.bucket.head(ctx, key)
}

// list returns a page of a directory, and remembers its files for a moment. Keys that
// have an empty segment, such as a/ or a//b, are no files or directories.
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
	until := now().Add(listedFor)
	for _, o := range objects {
		t.listed[o.key] = seen{o, until}
		if name := o.key[len(prefix):]; name != "" {
			entries = append(entries, fuse.DirEntry{Name: name, Mode: fuse.S_IFREG})
		}
	}
	for _, d := range dirs {
		if name := strings.TrimSuffix(d[len(prefix):], "/"); name != "" {
			entries = append(entries, fuse.DirEntry{Name: name, Mode: fuse.S_IFDIR})
		}
	}
	return entries, next, nil
}

// unlisted returns the new files and directories directly below a prefix, which
// are in no list.
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
		f.saving.Lock()
		_ = f.save(ctx) // It is among the broken ones.
		f.saving.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.broken)
}
