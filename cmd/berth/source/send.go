package source

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"berth/api/client"
	"berth/api/wire"
	"berth/compute"
)

// sending is how many blobs are sent at once.
const sending = 4

// Send makes a bundle of the tree and returns it. It calls progress with the bytes
// that are to be sent, and then with each number of bytes that was; progress may
// be called concurrently.
func (t *Tree) Send(
	ctx context.Context, c *client.Client, total func(bytes int64), progress func(bytes int64),
) (wire.CommittedBundle, error) {
	bundle, err := c.CreateBundle(ctx, t.Files)
	if err != nil {
		return wire.CommittedBundle{}, err
	}
	var bytes int64
	for _, digest := range bundle.Missing {
		for _, p := range t.pieces[digest] {
			bytes += p.length
		}
	}
	total(bytes)
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(sending)
	for _, digest := range bundle.Missing {
		group.Go(func() error {
			data, err := t.read(digest)
			if err == nil {
				err = c.PutBlob(within, bundle.BundleID, digest, data)
			}
			if err == nil {
				progress(int64(len(data)))
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return wire.CommittedBundle{}, err
	}
	return c.CommitBundle(ctx, bundle.BundleID)
}

// read returns a blob. Files that are not what they were are an error.
func (t *Tree) read(digest compute.Digest) ([]byte, error) {
	parts, ok := t.pieces[digest]
	if !ok {
		return nil, fmt.Errorf("the cluster asks for blob %s, which is not part of the directory", digest)
	}
	var data []byte
	var names []string
	for _, p := range parts {
		piece, err := t.readPart(p)
		if err != nil {
			return nil, fmt.Errorf("%w (%w)", errChanged(p.path), err)
		}
		data = append(data, piece...)
		names = append(names, p.path)
	}
	if sha256.Sum256(data) != digest {
		return nil, t.changed(parts, names)
	}
	return data, nil
}

// changed returns the error that names the files of a blob that changed, as far as
// that is known.
func (t *Tree) changed(parts []part, names []string) error {
	if len(parts) > maxShown {
		names = append(names[:maxShown:maxShown], fmt.Sprintf("or one of %d more", len(parts)-maxShown))
	}
	return errChanged(names...)
}

// maxShown is how many files of a blob an error names.
const maxShown = 5

// readPart returns a range of a file.
func (t *Tree) readPart(p part) ([]byte, error) {
	file, err := os.Open(filepath.Join(t.root, p.path))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	piece := make([]byte, p.length)
	_, err = io.ReadFull(io.NewSectionReader(file, p.offset, p.length), piece)
	return piece, err
}
