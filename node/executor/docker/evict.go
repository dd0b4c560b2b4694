package docker

import (
	"context"
	"errors"

	cerrdefs "github.com/containerd/errdefs"
)

// evict removes pulled images, the least recently used first, until they fit their
// limit.
func (e *Engine) evict(ctx context.Context, keep string) {
	e.removeOldest(ctx, keep, e.cfg.KeepMiB<<20, func() bool { return true })
}

// makeRoom does the same while the engine's disk is nearly full.
func (e *Engine) makeRoom(ctx context.Context, keep string) {
	root := e.Facts().root
	if root == "" {
		return
	}
	e.removeOldest(ctx, keep, 0, func() bool {
		free, err := e.free(root)
		return err == nil && free < minFree
	})
}

// removeOldest removes pulled images, the least recently used first, until they fit a limit
// or there is enough room. It leaves out those of live attempts and those that the engine
// keeps, since a container has them.
func (e *Engine) removeOldest(ctx context.Context, keep string, limit int64, more func() bool) {
	tried := map[string]bool{keep: true}
	for removed := 0; removed < maxEvictions && more(); {
		ref := e.images.oldest(limit, tried)
		if ref == "" {
			return
		}
		tried[ref] = true
		switch err := e.remove(ctx, ref); {
		case err == nil:
			removed++
		case errors.Is(err, errInUse):
		default:
			e.cfg.Logger.Warn("image not removed", "err", err)
			if unreachable(err) || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				return
			}
		}
	}
}

// errInUse means that an image is kept, because it is used.
var errInUse = errors.New("the image is in use")

// remove removes a pulled image that no live attempt has and that is not being pulled.
func (e *Engine) remove(ctx context.Context, ref string) error {
	unlock, ok := e.images.tryLock(ref)
	if !ok {
		return errInUse
	}
	defer unlock()
	if e.images.pinned(ref, e.cfg.Live) {
		return errInUse
	}
	switch err := e.drop(ctx, e.images.nameOf(ref)); {
	case cerrdefs.IsConflict(err):
		return errInUse // A container has it, or a name of the operator's names it.
	case err != nil:
		return err
	}
	return e.images.forget(ref)
}

// maxEvictions is how many images one pull removes at most.
const maxEvictions = 100
