package remote

import (
	"context"
	"crypto/md5" //nolint:gosec // Stores compare uploads with it.
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"gocloud.dev/blob"

	"berth/compute"
)

const (
	blobDir  = "blobs/"
	trashDir = "trash/"
	callTime = time.Minute // For one blob, with the retries of the SDK.
)

// Store is an object store. Its methods are safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	mark   string
	now    func() time.Time

	mu sync.Mutex

	reached time.Time // When the bucket was there last.
	claimed bool      // It has this cluster's mark.
}

// Close ends the use of the store.
func (s *Store) Close() error { return s.bucket.Close() }

// nameOf returns the name of a blob without its directory.
func nameOf(h compute.Hash) string { return hex.EncodeToString(h[:1]) + "/" + hex.EncodeToString(h[:]) }

// hashOf returns the hash of a name, and whether it has one.
func hashOf(name string) (h compute.Hash, ok bool) {
	_, text, _ := strings.Cut(name, "/")
	n, err := hex.Decode(h[:], []byte(text[:min(len(text), 2*len(h))]))
	return h, err == nil && n == len(h) && nameOf(h) == name
}

// Put keeps a blob, and returns when the store says that it has it. One that is there
// becomes young again.
func (s *Store) Put(ctx context.Context, data []byte) (compute.Hash, error) {
	hash := compute.Hash(sha256.Sum256(data))
	return hash, s.write(ctx, blobDir+nameOf(hash), data)
}

// Lend is Put. Data is not free: the client of the store may still read it.
func (s *Store) Lend(ctx context.Context, data []byte) (hash compute.Hash, free bool, err error) {
	hash, err = s.Put(ctx, data)
	return hash, false, err
}

// write writes an object, which the store compares with a checksum.
func (s *Store) write(ctx context.Context, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.claim(ctx); err != nil {
		return err
	}
	sum := md5.Sum(data) //nolint:gosec // Azure and Google compare uploads with it; the client of S3 has its own.
	err := s.bucket.WriteAll(ctx, name, data, &blob.WriterOptions{
		ContentMD5: sum[:], ContentType: "application/octet-stream",
		BeforeWrite: func(as func(any) bool) error { return inOnePart(as, len(data)) },
	})
	if err != nil {
		return failed("put", err)
	}
	return nil
}

// inOnePart uploads to Azure with one request, Put Blob, whatever the size: Azure compares that with
// the MD5, which it only keeps beside several parts.
func inOnePart(as func(any) bool, size int) error {
	var azure *azblob.UploadStreamOptions
	if as(&azure) {
		azure.BlockSize = max(azure.BlockSize, int64(size)+1)
	}
	return nil
}

// Get returns a blob. Bytes that do not hash to its name are an error.
func (s *Store) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	data, err := s.read(ctx, blobDir+nameOf(hash), trashDir+nameOf(hash)) // The next sweep brings it back.
	if err != nil {
		return nil, err
	}
	if compute.Hash(sha256.Sum256(data)) != hash {
		return nil, compute.Errorf(compute.CodeUnavailable, "The object store returned other bytes for blob %x.", hash[:8])
	}
	return data, nil
}

// read reads an object, or another one if it is not there.
func (s *Store) read(ctx context.Context, name, other string) ([]byte, error) {
	if err := compute.MayAsk(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	data, err := s.bucket.ReadAll(ctx, name)
	if absent(err) {
		data, err = s.bucket.ReadAll(ctx, other)
	}
	if absent(err) {
		if err := s.reach(ctx); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, failed("get", err)
	}
	return data, nil
}

// Peek has nothing to read: the store is not on this node's disk.
func (*Store) Peek(compute.Hash, []byte) ([]byte, bool) { return nil, false }

// Has reports whether the store has a blob, outside of the trash.
func (s *Store) Has(ctx context.Context, hash compute.Hash) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	_, err := s.bucket.Attributes(ctx, blobDir+nameOf(hash))
	switch {
	case err == nil:
		return true, nil
	case absent(err):
		return false, s.reach(ctx)
	}
	return false, failed("look up", err)
}

// All returns the blobs that the store has, outside of the trash.
func (s *Store) All(ctx context.Context) (map[compute.Hash]bool, error) {
	all := make(map[compute.Hash]bool)
	err := s.each(ctx, blobDir, func(h compute.Hash, _ *blob.ListObject) error {
		all[h] = true
		return nil
	})
	return all, err
}

// each calls f for each blob of a directory.
func (s *Store) each(ctx context.Context, dir string, f func(compute.Hash, *blob.ListObject) error) error {
	if err := s.reach(ctx); err != nil {
		return err
	}
	for list := s.bucket.List(&blob.ListOptions{Prefix: dir}); ; {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return failed("list", err)
		}
		h, ok := hashOf(strings.TrimPrefix(o.Key, dir))
		if !ok {
			continue // Not ours.
		}
		if err := f(h, o); err != nil {
			return err
		}
	}
}

// Sweep moves blobs to the trash that are not live and are older than minAge. It deletes
// blobs that have been in the trash for as long, and moves live ones back. It returns how
// many were moved to the trash and deleted.
func (s *Store) Sweep(
	ctx context.Context, live func(compute.Hash) bool, minAge time.Duration,
) (moved, deleted int, err error) {
	if err := s.claim(ctx); err != nil {
		return 0, 0, err
	}
	old := s.now().Add(-minAge)
	err = s.each(ctx, trashDir, func(h compute.Hash, o *blob.ListObject) error {
		switch {
		case live(h):
			return s.move(ctx, trashDir, blobDir, h)
		case o.ModTime.Before(old):
			deleted++
			return s.remove(ctx, trashDir+nameOf(h))
		}
		return nil
	})
	if err != nil {
		return moved, deleted, err
	}
	err = s.each(ctx, blobDir, func(h compute.Hash, o *blob.ListObject) error {
		if live(h) || !o.ModTime.Before(old) {
			return nil
		}
		moved++
		return s.move(ctx, blobDir, trashDir, h)
	})
	return moved, deleted, err
}

// move moves a blob to another directory.
func (s *Store) move(ctx context.Context, from, to string, h compute.Hash) error {
	if err := s.copy(ctx, from+nameOf(h), to+nameOf(h)); err != nil {
		return failed("copy", err)
	}
	return s.remove(ctx, from+nameOf(h))
}

// copy copies an object. The driver for Azure (gocloud.dev v0.49) panics if it cannot ask how far a
// copy is that takes a while; that must not end the node.
func (s *Store) copy(ctx context.Context, from, to string) (err error) {
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("the client of the store panicked: %v", why)
		}
	}()
	return s.bucket.Copy(ctx, to, from, nil)
}

// remove deletes an object. It succeeds if there is none.
func (s *Store) remove(ctx context.Context, name string) error {
	if err := s.bucket.Delete(ctx, name); err != nil && !absent(err) {
		return failed("delete", err)
	}
	return nil
}
