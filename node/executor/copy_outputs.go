package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"berth/compute"
	"berth/node/executor/live"
	"berth/node/executor/mount"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	copyPatience = 5 * time.Minute // For all outputs of an attempt to be copied to the bucket.
	copiesAtOnce = 8               // Files; small ones mostly wait for disks.
)

// copy stores the outputs of an attempt below the prefix that its start names in
// the bucket of its organization. The error is for people.
func (o *outputKeeper) copy(ctx context.Context, a *live.Attempt) error {
	prefix, err := o.dirs.OutputsPrefix(a.Key)
	if err != nil || prefix == "" {
		return err
	}
	file, err := os.Open(o.dirs.File(a.Key, supervise.OutputsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	to, err := o.uploader(ctx, a)
	if err != nil {
		return err
	}
	return copyTo(ctx, to, prefix, io.NewSectionReader(file, 0, info.Size()))
}

// uploader returns what stores files in the bucket of an attempt's organization, with the
// rights of who started it.
func (o *outputKeeper) uploader(ctx context.Context, a *live.Attempt) (*mount.Uploader, error) {
	if o.storage.Socket == "" {
		return nil, compute.Errorf(compute.CodeUnavailable, "this node has no socket for it: see its log")
	}
	work, err := a.AwaitWork(ctx)
	if err != nil {
		return nil, err
	}
	var access *compute.StorageAccess
	var refused error
	err = o.calls.Repeat(ctx, func(ctx context.Context) (err error) {
		access, err = o.storage.Access(ctx, *work)
		if code := compute.CodeOf(err); code == compute.CodeForbidden || code == compute.CodeUnauthenticated {
			refused = err
			return nil
		}
		return err
	})
	if err = errors.Join(refused, err); err != nil {
		return nil, err
	}
	return mount.NewUploader(access, o.storage.Socket), nil
}

// storer stores one file in a bucket.
type storer interface {
	Store(ctx context.Context, key string, from io.ReaderAt, size int64) error
}

// copyTo stores the files of a work stream, a few at a time. A stream that is cut counts
// up to there. The error says how many files were not stored, and why the first one was
// not. Once storage refuses a file it is asked for no others, but for those under way.
func copyTo(ctx context.Context, to storer, prefix string, stream *io.SectionReader) error {
	files := sandbox.NewWorkReader(stream)
	var group sync.WaitGroup
	atOnce := make(chan struct{}, copiesAtOnce)
	var mu sync.Mutex
	var count, failed int
	var first error
	var refused atomic.Bool
	fail := func(key, why string) {
		mu.Lock()
		defer mu.Unlock()
		if failed++; first == nil {
			first = fmt.Errorf("%q: %s", compute.Clip(key, compute.MaxPath), why)
		}
	}
	for {
		entry, _, err := files.Next()
		if err != nil || files.Offset()+entry.Size > stream.Size() {
			break // The summary says whether something is missing.
		}
		if entry.Kind != sandbox.WorkRegular || compute.BadPath(entry.Path) != "" {
			continue
		}
		at, key := files.Offset(), prefix+"/"+entry.Path
		count++
		if bad := compute.BadObjectKey(key); bad != "" {
			fail(key, bad)
			continue
		}
		if atOnce <- struct{}{}; refused.Load() {
			<-atOnce
			fail(key, "storage has refused another file")
			continue
		}
		group.Go(func() {
			defer func() { <-atOnce }()
			if err := to.Store(ctx, key, io.NewSectionReader(stream, at, entry.Size), entry.Size); err != nil {
				fail(key, storeReason(ctx, err))
				refused.Store(true)
			}
		})
	}
	group.Wait()
	if failed == 0 {
		return nil
	}
	return compute.Errorf(compute.CodeUnavailable, "%d of %d files, the first: %w", failed, count, first)
}

// storeReason says for people why a file was not stored.
func storeReason(ctx context.Context, err error) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "there was no time left"
	}
	return err.Error()
}
