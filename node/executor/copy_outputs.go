package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/compute"
	"berth/loop"
	"berth/node/executor/mount"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

const (
	copyPatience = 10 * time.Minute // For all outputs of an attempt to be copied to the bucket.
	copiesAtOnce = 8                // Files; small ones mostly wait for disks.
	workPatience = time.Minute      // For the work of an attempt of an earlier process.
	workPause    = 100 * time.Millisecond
)

// copyOutputs stores the outputs of an attempt below the prefix that its start names in
// the bucket of its organization. The error is the first one, after all files were tried.
func (e *Executor) copyOutputs(ctx context.Context, a *attempt) error {
	file, err := os.Open(filepath.Join(e.dir(a.key), supervise.OutputsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, copyPatience)
	defer cancel()
	work, err := a.awaitWork(ctx)
	if err != nil || work.Execution.OutputsPrefix == "" {
		return err
	}
	if e.cfg.Storage.Socket == "" {
		return compute.Errorf(compute.CodeUnavailable, "this node has no socket for it: see its log")
	}
	var access *compute.StorageAccess
	err = e.repeat(ctx, func(ctx context.Context) (err error) {
		access, err = e.cfg.Storage.Access(ctx, *work)
		return err
	})
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	stream := io.NewSectionReader(file, 0, info.Size())
	return copyTo(ctx, mount.NewUploader(access, e.cfg.Storage.Socket), outputsPrefix(work.Execution), stream)
}

// outputsPrefix returns where in the bucket the outputs of an execution go. Runs of a GPU
// selection have a folder each.
func outputsPrefix(e *compute.Execution) string {
	prefix := e.OutputsPrefix
	if e.Kind != compute.KindSubSelection {
		return prefix
	}
	prefix += "/" + strings.TrimPrefix(e.Profile, "gpu.")
	if e.Repeat > 1 {
		prefix += fmt.Sprintf("-%d", e.Repeat)
	}
	return prefix
}

// awaitWork returns the work of the attempt. An attempt of an earlier process of the node
// has it once the state was read.
func (a *attempt) awaitWork(ctx context.Context) (work *compute.Work, err error) {
	ctx, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	err = loop.Until(ctx, workPause, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		work = a.work
		return work != nil
	})
	return work, err
}

// storer stores one file in a bucket.
type storer interface {
	Store(ctx context.Context, key string, from io.ReaderAt, size int64) error
}

// copyTo stores the files of a work stream, a few at a time. A stream that is cut counts
// up to there.
func copyTo(ctx context.Context, to storer, prefix string, stream *io.SectionReader) error {
	files := sandbox.NewWorkReader(stream)
	var group errgroup.Group
	group.SetLimit(copiesAtOnce)
	for {
		entry, _, err := files.Next()
		if err != nil || files.Offset()+entry.Size > stream.Size() {
			break // The summary says whether something is missing.
		}
		if entry.Kind != sandbox.WorkRegular || compute.BadPath(entry.Path) != "" {
			continue
		}
		at := files.Offset()
		group.Go(func() error {
			key := prefix + "/" + entry.Path
			if bad := compute.BadObjectKey(key); bad != "" {
				return compute.Errorf(compute.CodeInvalid, "%q: %s", compute.Clip(key, compute.MaxPath), bad)
			}
			if err := to.Store(ctx, key, io.NewSectionReader(stream, at, entry.Size), entry.Size); err != nil {
				return compute.Errorf(compute.CodeUnavailable, "%q: %w", compute.Clip(key, compute.MaxPath), err)
			}
			return nil
		})
	}
	return group.Wait()
}
