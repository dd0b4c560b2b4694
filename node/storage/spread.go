package storage

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"

	"berth/compute"
	"berth/fault"
)

// Spread returns once data is durable on as many of the nodes that are up as
// can take it, at least on least of all nodes. It is for blobs that every node
// is to keep: those that lack one bring it by Keep. The codes are Put's.
func (b *Blobs) Spread(ctx context.Context, data []byte, least int) (hash compute.Hash, err error) {
	defer func() { b.metrics.count("spread", err) }()
	hash = sha256.Sum256(data)
	if len(data) > MaxBlob {
		return hash, compute.Errorf(compute.CodeTooLarge, "A blob may have at most %d bytes.", MaxBlob)
	}
	up := slices.DeleteFunc(slices.Clone(b.cfg.Nodes()), func(n Node) bool { return !n.Up })
	taken, failed := race(ctx, up, len(up), putHedge, func(ctx context.Context, node compute.NodeID) ([]byte, error) {
		return nil, b.putOn(ctx, node, hash, data)
	})
	fault.Point("storage.spread.taken")
	switch {
	case len(taken) >= least:
		return hash, nil
	case ctx.Err() != nil:
		return hash, fmt.Errorf("spread blob: %w", ctx.Err())
	}
	return hash, tooFew(len(taken), least, failed)
}

// Has reports whether the blob is on this disk, without reading it.
func (b *Blobs) Has(hash compute.Hash) bool { return b.cfg.Store.Has(hash) }

// Keep returns once the blob is on this disk: from other nodes, where it was
// not. The codes are Get's.
func (b *Blobs) Keep(ctx context.Context, hash compute.Hash) error {
	if b.cfg.Store.Has(hash) {
		return nil
	}
	data, err := b.Get(ctx, hash)
	if err != nil {
		return err
	}
	return b.putLocal(hash, data)
}
