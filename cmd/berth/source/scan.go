package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"berth/api/wire"
	"berth/compute"
)

// Sizes of blobs.
const (
	chunkBytes = 2 << 20   // Blobs of a large file.
	smallFile  = 256 << 10 // Smaller files share blobs,
	packBytes  = 1 << 20   // of at most this size,
	packLeast  = 64 << 10  // and, but for the last, at least this.
	// packEnds is one of so many small files behind which a shared blob ends. Their
	// hashes decide, so that a change of one file changes one or two blobs.
	packEnds = 16
	maxBytes = 32 << 30 // No cluster takes more.
)

// Tree is a directory that was read.
type Tree struct {
	Files    []wire.BundleFile
	Bytes    int64
	Warnings []string // Files that were left out although no rule ignores them.

	root   string
	pieces map[compute.Digest][]part // Parts of each blob.
}

// part is a range of a file.
type part struct {
	path   string // Below the root.
	offset int64
	length int64
}

// scanner reads a directory.
type scanner struct {
	*Tree

	ctx    context.Context //nolint:containedctx // Lives for one call of Scan.
	buffer []byte

	pack    hash.Hash // Hash of the shared blob in the making.
	packed  int64
	waiting []int // The files in it, by their indexes.
}

// Scan reads the directory root. An error says what to change.
func Scan(ctx context.Context, root string) (*Tree, error) {
	s, err := newScanner(ctx, root)
	if err == nil {
		err = s.directory(nil, nil)
	}
	if err != nil {
		return nil, err
	}
	s.endPack()
	return s.Tree, nil
}

// ScanFiles reads some files of the directory root, by their paths below it,
// whatever is ignored.
func ScanFiles(ctx context.Context, root string, names ...string) (*Tree, error) {
	s, err := newScanner(ctx, root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(s.root, name))
		switch {
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular():
			return nil, fmt.Errorf("%s is not a file", name)
		}
		if err := s.file(filepath.ToSlash(name), info); err != nil {
			return nil, err
		}
	}
	s.endPack()
	return s.Tree, nil
}

func newScanner(ctx context.Context, root string) (*scanner, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return nil, errors.Join(err, fmt.Errorf("%s is not a directory", root))
	}
	return &scanner{
		Tree: &Tree{root: root, pieces: make(map[compute.Digest][]part)},
		ctx:  ctx, buffer: make([]byte, chunkBytes), pack: sha256.New(),
	}, nil
}

// Has reports whether a path is a file of the tree.
func (t *Tree) Has(name string) bool {
	return slices.ContainsFunc(t.Files, func(f wire.BundleFile) bool { return f.Path == name && !f.Dir })
}

// warn records something that is left out.
func (s *scanner) warn(name, why string) {
	s.Warnings = append(s.Warnings, name+" is left out: "+why)
}

// directory reads a directory with the patterns of those above.
func (s *scanner) directory(parts []string, patterns []gitignore.Pattern) error {
	dir := filepath.Join(append([]string{s.root}, parts...)...)
	own, err := ignorePatterns(dir, parts)
	if err != nil {
		return err
	}
	patterns = append(slices.Clip(patterns), own...)
	ignored := gitignore.NewMatcher(patterns)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	empty := len(parts) > 0
	for _, entry := range entries {
		at := append(slices.Clip(parts), entry.Name())
		if alwaysIgnored(entry.Name()) || ignored.Match(at, entry.IsDir()) {
			continue
		}
		empty = false
		if err := s.entry(at, entry, patterns); err != nil {
			return err
		}
	}
	if empty {
		return s.add(wire.BundleFile{Path: strings.Join(parts, "/"), Dir: true, Mode: modeOf(dir)})
	}
	return nil
}

// modeOf returns the permissions of a directory.
func modeOf(dir string) *uint32 {
	info, err := os.Stat(dir)
	if err != nil {
		return nil
	}
	mode := uint32(info.Mode().Perm())
	return &mode
}

// entry reads one entry of a directory.
func (s *scanner) entry(at []string, entry fs.DirEntry, patterns []gitignore.Pattern) error {
	name := strings.Join(at, "/")
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if why := compute.BadPath(name); why != "" && !entry.IsDir() {
		s.warn(fmt.Sprintf("%q", name), why)
		return nil
	}
	switch kind := entry.Type(); {
	case kind.IsDir():
		return s.directory(at, patterns)
	case kind&fs.ModeSymlink != 0:
		return s.link(name)
	case !kind.IsRegular():
		s.warn(name, "it is a device, a socket or a pipe")
		return nil
	}
	info, err := entry.Info()
	if err != nil {
		return fmt.Errorf("%s changed while it was read: %w", name, err)
	}
	return s.file(name, info)
}

// link adds a symbolic link that stays in the tree.
func (s *scanner) link(name string) error {
	target, err := os.Readlink(filepath.Join(s.root, name))
	if err != nil {
		return err
	}
	if !compute.LinkStays(name, target) {
		s.warn(name, "it is a link to "+target+", which is not in the directory")
		return nil
	}
	return s.add(wire.BundleFile{Path: name, Link: target})
}

// add adds a file, a link or a directory.
func (s *scanner) add(f wire.BundleFile) error {
	if len(s.Files) == compute.MaxTreeEntries {
		return fmt.Errorf("more than %d files: name what is not needed in .berthignore, or pack data into fewer files",
			compute.MaxTreeEntries)
	}
	s.Files = append(s.Files, f)
	return nil
}

// file hashes a file and says which blobs it is in.
func (s *scanner) file(name string, info fs.FileInfo) error {
	mode, size := uint32(info.Mode().Perm()), info.Size()
	if s.Bytes += size; s.Bytes > maxBytes {
		return fmt.Errorf("more than %d bytes up to %s: name what is not needed in .berthignore", int64(maxBytes), name)
	}
	file, err := os.Open(filepath.Join(s.root, name))
	if err != nil {
		return err
	}
	defer file.Close()
	out := wire.BundleFile{Path: name, Size: size, Mode: &mode}
	if size <= smallFile {
		err = s.small(file, out)
	} else {
		err = s.large(file, out)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errChanged(name)
	}
	return err
}

// errChanged says that a file was written meanwhile.
func errChanged(names ...string) error {
	return fmt.Errorf("%s changed while it was sent: try again once nothing writes to it", strings.Join(names, ", "))
}

// large adds a file with blobs of its own.
func (s *scanner) large(file *os.File, out wire.BundleFile) error {
	whole := sha256.New()
	for at := int64(0); at < out.Size; at += chunkBytes {
		piece := s.buffer[:min(chunkBytes, out.Size-at)]
		if _, err := io.ReadFull(file, piece); err != nil {
			return err
		}
		whole.Write(piece)
		digest := compute.Digest(sha256.Sum256(piece))
		out.Chunks = append(out.Chunks, digest)
		s.pieces[digest] = []part{{out.Path, at, int64(len(piece))}}
	}
	sum := compute.Digest(whole.Sum(nil))
	out.SHA256 = &sum
	return s.add(out)
}

// small adds a file to the shared blob in the making.
func (s *scanner) small(file *os.File, out wire.BundleFile) error {
	piece := s.buffer[:out.Size]
	if _, err := io.ReadFull(file, piece); err != nil && out.Size > 0 {
		return err
	}
	sum := compute.Digest(sha256.Sum256(piece))
	if out.Size == 0 {
		return s.add(out)
	}
	if s.packed+out.Size > packBytes {
		s.endPack()
	}
	out.Offset = s.packed
	s.pack.Write(piece)
	s.packed += out.Size
	s.waiting = append(s.waiting, len(s.Files))
	if err := s.add(out); err != nil {
		return err
	}
	if s.packed >= packLeast && sum[0]%packEnds == 0 {
		s.endPack()
	}
	return nil
}

// endPack ends the shared blob in the making.
func (s *scanner) endPack() {
	if len(s.waiting) == 0 {
		return
	}
	digest := compute.Digest(s.pack.Sum(nil))
	parts := make([]part, len(s.waiting))
	for i, at := range s.waiting {
		s.Files[at].Chunks = []compute.Digest{digest}
		parts[i] = part{s.Files[at].Path, 0, s.Files[at].Size}
	}
	s.pieces[digest] = parts
	s.pack.Reset()
	s.packed, s.waiting = 0, nil
}
