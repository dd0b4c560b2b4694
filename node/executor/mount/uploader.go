package mount

import (
	"context"
	"errors"
	"io"

	"berth/compute"
)

// Uploader stores files in the bucket of an organization. It is safe for concurrent use.
type Uploader struct{ bucket *bucket }

// NewUploader returns an Uploader that reaches the bucket over the socket of a node's S3
// endpoint. Requests without an answer are repeated for as long as those of mounts.
func NewUploader(access *compute.StorageAccess, socket string) *Uploader {
	return &Uploader{newBucket(access, socket, usual())}
}

// Store stores the first size bytes of a file, in place of an object with the key. The
// object is visible whole or not at all. The error is for people.
func (u *Uploader) Store(ctx context.Context, key string, from io.ReaderAt, size int64) error {
	_, err := u.bucket.store(ctx, key, from, size)
	if err != nil && ctx.Err() == nil {
		return errors.New(reason(err))
	}
	return err
}
