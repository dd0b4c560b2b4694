package compute

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of trees.
const (
	MaxChunk       = 4 << 20  // Bytes of one blob of file content.
	MaxTreeEntries = 50_000   // Files, links and directories together.
	MaxPath        = 512      // Bytes of a path.
	maxName        = 255      // Bytes of a part of a path, as file systems have it.
	maxTreeText    = 32 << 20 // A manifest that unpacks to more is refused.
)

// Digest is a Hash that is lower-case hexadecimal in text.
type Digest Hash

// String returns the digest in lower-case hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText returns what String returns.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText accepts what String returns.
func (d *Digest) UnmarshalText(text []byte) error {
	var sum Digest
	if n, err := hex.Decode(sum[:], text); len(text) != 2*len(sum) || n != len(sum) || err != nil ||
		sum.String() != string(text) {
		return errors.New("not a SHA-256 in lower-case hexadecimal")
	}
	*d = sum
	return nil
}

// Tree is the manifest of a tree of files: those of an uploaded bundle, or the outputs
// of an execution. Its encoding is a blob. Content is in other blobs, the chunks.
type Tree struct {
	Entries []TreeEntry `json:"files"`

	// ChunkSize is how long all chunks of a file but its last are; 0 if they are
	// of any length.
	ChunkSize int64 `json:"chunk_size,omitempty"`
}

// TreeEntry is a file, a directory or a symbolic link of a Tree. Directories
// above other entries need no entry of their own.
type TreeEntry struct {
	Path string `json:"path"` // From the root of the tree.
	Mode uint32 `json:"mode"` // Permissions.
	Dir  bool   `json:"dir,omitempty"`
	Link string `json:"link,omitempty"` // Target of a symbolic link.

	Size   int64    `json:"size,omitempty"` // Bytes of a file.
	SHA256 Digest   `json:"sha256,omitzero"`
	Chunks []Digest `json:"chunks,omitempty"` // The file is in them, one behind the other.
	Offset int64    `json:"offset,omitempty"` // Where it begins in its only chunk, which it shares with others.
}

// IsFile reports whether the entry is a regular file.
func (e *TreeEntry) IsFile() bool { return !e.Dir && e.Link == "" }

// BadPath returns why name cannot be the path of a file in a work directory, ""
// if it can.
func BadPath(name string) string {
	switch {
	case name == "" || len(name) > MaxPath:
		return fmt.Sprintf("a path has 1 to %d bytes", MaxPath)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return "a path has no control characters and no backslash"
	case strings.Count(name, "/") >= MaxPathDepth:
		return fmt.Sprintf("a path has at most %d parts", MaxPathDepth)
	case !fs.ValidPath(name) || name == ".":
		return "a path is relative, without '.' and '..'"
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return "a part of a path has at most 255 bytes"
		}
	}
	return ""
}

// LinkStays reports whether a symbolic link at a path of a tree leads to
// something in the tree, by its text alone.
func LinkStays(at, target string) bool {
	if target == "" || path.IsAbs(target) || len(target) > MaxPath ||
		!utf8.ValidString(target) || strings.ContainsFunc(target, unicode.IsControl) {
		return false
	}
	joined := path.Join(path.Dir(at), target)
	return joined != ".." && !strings.HasPrefix(joined, "../")
}

// errTree returns an error about a tree that clients have made.
func errTree(format string, args ...any) *Error {
	return Errorf(CodeInvalid, format, args...).Named("bundle")
}

// Check returns why a tree is invalid, nil if it is valid. Its files may have maxBytes
// together. No entry of a valid tree lies below a file or a link.
func (t *Tree) Check(maxBytes int64) error {
	if len(t.Entries) > MaxTreeEntries {
		return Errorf(CodeTooLarge, "A bundle has at most %d files, links and directories, not %d.",
			MaxTreeEntries, len(t.Entries)).Named("bundle_too_large")
	}
	kinds := make(map[string]bool, len(t.Entries)) // Whether it is a directory.
	var total int64
	for i := range t.Entries {
		e := &t.Entries[i]
		if err := e.check(t.ChunkSize); err != nil {
			return err
		}
		if _, twice := kinds[e.Path]; twice {
			return errTree("%.200q is in the bundle twice.", e.Path)
		}
		kinds[e.Path] = e.Dir
		if total += e.Size; total > maxBytes {
			return Errorf(CodeTooLarge, "The files of a bundle have at most %d bytes together.", maxBytes).
				Named("bundle_too_large")
		}
	}
	for i := range t.Entries {
		for dir := path.Dir(t.Entries[i].Path); dir != "."; dir = path.Dir(dir) {
			if isDir, is := kinds[dir]; is && !isDir {
				return errTree("%.200q goes through %.200q, which is not a directory.", t.Entries[i].Path, dir)
			}
		}
	}
	return nil
}

// check returns why one entry is invalid, nil if it is valid.
func (e *TreeEntry) check(chunkSize int64) error {
	if why := BadPath(e.Path); why != "" {
		return errTree("The path %.200q cannot be used: %s.", e.Path, why)
	}
	switch {
	case e.Mode&^uint32(fs.ModePerm) != 0:
		return errTree("The mode of %.200q is not only permissions: use 0 to 511.", e.Path)
	case e.Dir && e.Link != "", !e.IsFile() && (e.Size != 0 || len(e.Chunks) > 0 || e.Offset != 0):
		return errTree("%.200q is more than one of file, directory and link.", e.Path)
	case e.Link != "" && !LinkStays(e.Path, e.Link):
		return errTree("The link %.200q leaves the bundle: leave it out, or send what it leads to.", e.Path)
	case e.Size < 0 || e.Offset < 0 || e.Offset > MaxChunk:
		return errTree("The size or offset of %.200q is out of range.", e.Path)
	case !e.IsFile():
		return nil
	}
	n, least := int64(len(e.Chunks)), int64(1)
	if e.Size == 0 {
		least = 0
	}
	switch {
	case n < least, e.Size > n*MaxChunk-e.Offset, n > e.Size:
		return errTree("%.200q has %d bytes, and %d chunks of at most %d.", e.Path, e.Size, n, MaxChunk)
	case e.Offset > 0 && n != 1:
		return errTree("%.200q has an offset and more than one chunk.", e.Path)
	case chunkSize != 0 && (chunkSize < 0 || chunkSize > MaxChunk || n != (e.Size+chunkSize-1)/chunkSize):
		return errTree("The chunks of %.200q are not of %d bytes.", e.Path, chunkSize)
	}
	return nil
}

// Bytes returns the size of all files together.
func (t *Tree) Bytes() (total int64) {
	for i := range t.Entries {
		total += t.Entries[i].Size
	}
	return total
}

// Chunks yields the chunks of all files in the order of their first use, each
// once.
func (t *Tree) Chunks() iter.Seq[Hash] {
	return func(yield func(Hash) bool) {
		seen := make(map[Digest]bool)
		for i := range t.Entries {
			for _, d := range t.Entries[i].Chunks {
				if seen[d] {
					continue
				}
				seen[d] = true
				if !yield(Hash(d)) {
					return
				}
			}
		}
	}
}

// Entry returns the entry at a path.
func (t *Tree) Entry(name string) (*TreeEntry, bool) {
	for i := range t.Entries {
		if t.Entries[i].Path == name {
			return &t.Entries[i], true
		}
	}
	return nil, false
}

// Encode returns the tree as gzipped JSON, the same bytes for the same tree.
func (t *Tree) Encode() ([]byte, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return nil, fmt.Errorf("encode tree: %w", err)
	}
	data, err := zip(text)
	if err != nil {
		return nil, fmt.Errorf("encode tree: %w", err)
	}
	return data, nil
}

// DecodeTree is the inverse of Encode.
func DecodeTree(data []byte) (*Tree, error) {
	text, err := unzip(data, maxTreeText)
	if err != nil {
		return nil, fmt.Errorf("decode tree: %w", err)
	}
	t := new(Tree)
	if err := json.Unmarshal(text, t); err != nil {
		return nil, fmt.Errorf("decode tree: %w", err)
	}
	return t, nil
}

// ReadBlob returns the blob with a hash.
type ReadBlob func(Hash) ([]byte, error)

// TreeReader reads the files of a tree. It holds one chunk at a time, so that
// files which share one cost a single read when they are read in order.
type TreeReader struct {
	read ReadBlob
	hash Hash
	data []byte
}

// NewTreeReader returns a reader of files whose chunks read returns.
func NewTreeReader(read ReadBlob) *TreeReader { return &TreeReader{read: read} }

// Copy writes the content of a file from an offset on, length bytes of it, to w.
func (r *TreeReader) Copy(w io.Writer, e *TreeEntry, chunkSize, from, length int64) error {
	skip, chunks := from+e.Offset, e.Chunks
	if chunkSize > 0 {
		first := min(from/chunkSize, int64(len(chunks)))
		chunks, skip = chunks[first:], skip-first*chunkSize
	}
	for _, d := range chunks {
		if length == 0 {
			return nil
		}
		data, err := r.chunk(Hash(d))
		if err != nil {
			return err
		}
		if skip >= int64(len(data)) {
			skip -= int64(len(data))
			continue
		}
		data = data[skip:]
		data = data[:min(length, int64(len(data)))]
		if _, err := w.Write(data); err != nil {
			return err
		}
		skip, length = 0, length-int64(len(data))
	}
	if length > 0 {
		return errTree("The chunks of %.200q are shorter than the file by %d bytes.", e.Path, length)
	}
	return nil
}

// chunk returns a chunk.
func (r *TreeReader) chunk(hash Hash) ([]byte, error) {
	if r.data != nil && r.hash == hash {
		return r.data, nil
	}
	data, err := r.read(hash)
	if err != nil {
		return nil, err
	}
	r.hash, r.data = hash, data
	return data, nil
}
