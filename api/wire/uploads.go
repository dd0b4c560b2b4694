//nolint:lll // A field and its rules are one line.
package wire

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"berth/compute"
)

// NewBundle is the body of POST /bundles.
type NewBundle struct {
	Files []BundleFile `json:"files" required:"true" doc:"Files, links and empty directories; at most 50000. The rest of the directories follow from the paths."`
}

// BundleFile is a file, a link or a directory of a bundle.
type BundleFile struct {
	Path   string           `json:"path" required:"true" doc:"Relative, with / between its parts."`
	SHA256 *compute.Digest  `json:"sha256,omitempty" doc:"SHA-256 of the content; without chunks also the name of its only blob."`
	Size   int64            `json:"size,omitempty" doc:"Bytes."`
	Mode   *uint32          `json:"mode,omitempty" doc:"Permissions as a number, 0 to 511; 420 (rw-r--r--) when absent, 493 (rwxr-xr-x) for a directory."`
	Chunks []compute.Digest `json:"chunks,omitempty" doc:"The blobs of a file over 4 MiB, one behind the other, each of at most 4 MiB."`
	Offset int64            `json:"offset,omitempty" doc:"Where a small file begins in its only chunk, which it shares with others."`
	Dir    bool             `json:"dir,omitempty" doc:"It is a directory."`
	Link   string           `json:"link,omitempty" doc:"It is a symbolic link to this path, relative to its directory and inside the bundle."`
}

// Bundle answers POST /bundles.
type Bundle struct {
	BundleID compute.BundleID `json:"bundle_id"`
	Missing  []compute.Digest `json:"missing" doc:"Blobs to send with PUT /bundles/{id}/blobs/{sha256}."`
}

// ReceivedBlob answers PUT /bundles/{id}/blobs/{sha256}.
type ReceivedBlob struct {
	Received int `json:"received" doc:"Bytes."`
}

// CommittedBundle answers POST /bundles/{id}/commit.
type CommittedBundle struct {
	BundleID compute.BundleID `json:"bundle_id"`
	Files    int              `json:"files" doc:"Files, links and directories."`
	Size     int64            `json:"size" doc:"Bytes of all files."`
}

// Output is a file that an execution left.
type Output struct {
	Name      string          `json:"name" doc:"Path below the directory outputs."`
	Size      int64           `json:"size" doc:"Bytes."`
	SHA256    compute.Digest  `json:"sha256"`
	CreatedAt compute.Instant `json:"created_at" doc:"When the execution ended."`
}

// Permissions of what says none.
const (
	fileMode = 0o644
	dirMode  = 0o755
)

// DecodeTree reads the body of POST /bundles, or returns its faults.
func DecodeTree(data []byte) (*compute.Tree, error) {
	f := new(Faults)
	var in NewBundle
	err := json.Unmarshal(data, &in)
	typed, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case len(strings.TrimSpace(string(data[:min(len(data), 16)]))) == 0:
		f.add(typeMissing, nil, []any{"body"})
	case !utf8.Valid(data):
		f.invalidJSON("the text is not UTF-8", "body", 0)
	case isType:
		f.Value("not a "+typed.Type.String()+" but a "+typed.Value, "body", "files", typed.Field)
	case err != nil && json.Valid(data):
		f.Value(err.Error(), "body", "files")
	case err != nil:
		f.invalidJSON(err.Error(), "body", 0)
	case in.Files == nil:
		f.add(typeMissing, nil, []any{"body", "files"})
	}
	if err := f.Err(); err != nil {
		return nil, err
	}
	t := &compute.Tree{Entries: make([]compute.TreeEntry, len(in.Files))}
	for i := range in.Files {
		if t.Entries[i], err = in.Files[i].entry(); err != nil {
			f.Value(err.Error(), "body", "files", i)
		}
	}
	// The same files have the same manifest, in whatever order they are sent.
	slices.SortFunc(t.Entries, func(a, b compute.TreeEntry) int { return strings.Compare(a.Path, b.Path) })
	return t, f.Err()
}

// entry returns the file as a tree has it.
func (b *BundleFile) entry() (compute.TreeEntry, error) {
	e := compute.TreeEntry{
		Path: b.Path, Mode: fileMode, Dir: b.Dir, Link: b.Link, Size: b.Size, Chunks: b.Chunks, Offset: b.Offset,
	}
	switch {
	case b.Mode != nil:
		e.Mode = *b.Mode
	case b.Dir:
		e.Mode = dirMode
	}
	if b.Link != "" {
		e.Mode = 0 // Links have no permissions of their own.
	}
	if b.SHA256 != nil {
		e.SHA256 = *b.SHA256
	}
	if e.IsFile() && e.Size > 0 && len(e.Chunks) == 0 {
		if b.SHA256 == nil {
			return e, errors.New("a file has sha256 or chunks")
		}
		e.Chunks = []compute.Digest{*b.SHA256}
	}
	return e, nil
}
