package mount

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

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

// fill reads a page. Entries that no list has come last.
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
