package replication

import (
	"context"
	"math/rand/v2"

	"berth/compute"
	"berth/node/trees"
)

// fetched is the result of fetching blobs.
type fetched struct {
	lost    int          // No server has them.
	refused int          // They could not be fetched yet.
	held    compute.Hash // The first of the refused.
	first   compute.Hash
	err     error          // The first failure; a full disk takes precedence.
	left    []compute.Hash // The refused ones.
}

// addUnread counts manifests that could not be read: some of their chunks may be
// missing here. If no server has one, its chunks are of no use.
func (b *fetched) addUnread(unread []trees.Unread) {
	for _, u := range unread {
		if b.err == nil {
			b.first, b.err = u.Manifest, u.Err
		}
		if compute.CodeOf(u.Err) == compute.CodeNotFound {
			continue // Counted as lost already, where this server owns it.
		}
		if b.refused == 0 {
			b.held = u.Manifest
		}
		b.refused++
	}
}

// addMissing counts manifests of objects that could not be read.
func (b *fetched) addMissing(count int, err error) {
	if err == nil {
		return
	}
	if b.err == nil {
		b.err = err
	}
	if compute.CodeOf(err) != compute.CodeNotFound {
		b.refused += count
	}
}

// fetchAll fetches blobs with one and calls have for each that is on this disk
// afterwards. It gives up on the others when the disk is full, because they
// would be fetched and discarded, and when too many fetches fail.
func (r *Repairer) fetchAll(
	ctx context.Context, hashes []compute.Hash, one func(context.Context, compute.Hash) error, have func(),
) (b fetched) {
	// Blobs that cannot be fetched must not always come first.
	rand.Shuffle(len(hashes), func(i, j int) { hashes[i], hashes[j] = hashes[j], hashes[i] })
	for i, hash := range hashes {
		err := fetch(ctx, hash, one)
		if ctx.Err() != nil {
			if b.refused == 0 {
				b.held = hash
			}
			b.refused += len(hashes) - i
			b.left = append(b.left, hashes[i:]...)
			return b
		}
		full := compute.CodeOf(err) == compute.CodeNoSpace
		if err != nil && (b.err == nil || full) {
			b.first, b.err = hash, err
		}
		switch {
		case err == nil:
			have()
		case compute.CodeOf(err) == compute.CodeNotFound:
			b.lost++
		default:
			if b.refused == 0 {
				b.held = hash
			}
			b.refused++
			b.left = append(b.left, hash)
		}
		if full || b.refused >= maxFailed {
			b.refused += len(hashes) - i - 1
			b.left = append(b.left, hashes[i+1:]...)
			return b
		}
	}
	return b
}

// fetch fetches one blob.
func fetch(ctx context.Context, hash compute.Hash, one func(context.Context, compute.Hash) error) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return one(ctx, hash)
}
