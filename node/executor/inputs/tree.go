package inputs

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"time"

	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/sandbox"
)

// How long many files may take to unpack, beyond the time of a start.
const (
	unpackBytes = 4 << 20              // A second for so many bytes,
	unpackEntry = 2 * time.Millisecond // and this for each entry.
)

// blob returns a manifest or a chunk. It tries for a minute.
func (i *Inputs) blob(ctx context.Context, hash compute.Hash) (data []byte, err error) {
	if i.blobs == nil {
		return nil, fmt.Errorf("%w: this node reads no uploaded files", ErrUnread)
	}
	err = i.calls.Input(ctx, func(ctx context.Context) (err error) {
		data, err = i.blobs.Get(ctx, hash)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	return data, nil
}

// Tree returns the manifest of an execution's uploaded files, nil for none. It is
// checked again, because its names become paths.
func (i *Inputs) Tree(ctx context.Context, files *compute.Files) (*compute.Tree, error) {
	if files == nil {
		return nil, nil
	}
	data, err := i.blob(ctx, files.Manifest)
	if err != nil {
		return nil, err
	}
	tree, err := compute.DecodeTree(data)
	if err == nil {
		err = tree.Check(math.MaxInt64)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	return tree, nil
}

// UnpackTime returns how long the files of a tree may take to unpack, 0 for no
// tree.
func UnpackTime(tree *compute.Tree) time.Duration {
	if tree == nil {
		return 0
	}
	return time.Second + time.Duration(tree.Bytes()/unpackBytes)*time.Second + time.Duration(len(tree.Entries))*unpackEntry
}

// Uploaded returns a function that writes the files of a tree to a work stream,
// nil for no tree. It holds one chunk in memory at a time, and ends when the
// attempt must not start.
func (i *Inputs) Uploaded(
	ctx context.Context, a *live.Attempt, tree *compute.Tree,
) func(w *sandbox.WorkWriter, own map[string]bool) error {
	if tree == nil {
		return nil
	}
	return func(w *sandbox.WorkWriter, own map[string]bool) error {
		reader := compute.NewTreeReader(func(hash compute.Hash) ([]byte, error) {
			if err := a.MayStart(); err != nil {
				return nil, err
			}
			return i.blob(ctx, hash)
		})
		for n := range tree.Entries {
			entry := &tree.Entries[n]
			if own[entry.Path] {
				continue
			}
			if err := writeEntry(w, reader, entry, tree.ChunkSize); err != nil {
				return err
			}
		}
		return nil
	}
}

// writeEntry writes one entry of a tree to a work stream.
func writeEntry(w *sandbox.WorkWriter, reader *compute.TreeReader, e *compute.TreeEntry, chunkSize int64) error {
	mode := fs.FileMode(e.Mode).Perm()
	switch {
	case e.Dir:
		return w.Text(sandbox.WorkDirKind, mode, e.Path, "")
	case e.Link != "":
		return w.Text(sandbox.WorkLink, mode, e.Path, e.Link)
	}
	head := sandbox.WorkEntry{Kind: sandbox.WorkRegular, Mode: mode, Path: e.Path, Size: e.Size}
	if err := w.Entry(head); err != nil {
		return err
	}
	return reader.Copy(w, e, chunkSize, 0, e.Size)
}
