package storage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"

	"berth/compute"
	"berth/fault"
)

// Spread returns once data is durable on as many of the nodes that are up as
// can take it, and on at least the given number of all nodes. It is for blobs that every
// node stores. Nodes that lack one fetch it with Fetch. The codes are Put's.
func (b *Blobs) Spread(ctx context.Context, data []byte, least int) (hash compute.Hash, err error) {
	defer func() { b.metrics.count("spread", err) }()
	hash = sha256.Sum256(data)
	if len(data) > MaxBlob {
		return hash, compute.Errorf(compute.CodeTooLarge, "A blob may have at most %d bytes.", MaxBlob)
	}
	up := slices.DeleteFunc(slices.Clone(b.cfg.Nodes()), func(n Node) bool { return !n.Up })
	taken, failed := hedged(ctx, up, len(up), putHedge, func(ctx context.Context, node compute.NodeID) ([]byte, error) {
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

// Has reports whether the blob is on this disk, as Store.Has does.
func (b *Blobs) Has(hash compute.Hash) bool { return b.cfg.Store.Has(hash) }

// Fetch returns once the blob is on this disk. It fetches a missing or
// unreadable blob from other nodes. The codes are Get's and Put's.
func (b *Blobs) Fetch(ctx context.Context, hash compute.Hash) error {
	if b.cfg.Store.Has(hash) {
		return nil
	}
	data, err := b.Get(ctx, hash)
	if err != nil {
		return err
	}
	return b.putLocal(hash, data)
}

// FetchFrom returns once the blob is on this disk. It fetches a missing blob
// from one other node. The code is not_found when that node answers that it has
// none. Otherwise the codes are Get's and Put's.
func (b *Blobs) FetchFrom(ctx context.Context, node compute.NodeID, hash compute.Hash) error {
	if b.cfg.Store.Has(hash) {
		return nil
	}
	data, err := b.getFrom(ctx, node, hash)
	if err != nil {
		return err
	}
	return b.putLocal(hash, data)
}

// Lacking returns those of hashes, each once, that are missing on this disk
// although this node owns them. Ownership is computed as if all nodes except
// those of without were up and had been up whenever a blob was put.
func (b *Blobs) Lacking(hashes iter.Seq[compute.Hash], without []compute.NodeID) (lacking []compute.Hash) {
	nodes := slices.DeleteFunc(b.others(b.cfg.Nodes()), func(n Node) bool { return slices.Contains(without, n.ID) })
	seen := make(map[compute.Hash]bool)
	for hash := range hashes {
		if seen[hash] || !b.owns(hash, nodes) || b.cfg.Store.Has(hash) {
			continue
		}
		seen[hash] = true
		lacking = append(lacking, hash)
	}
	return lacking
}

// owns reports whether this node is among the owners of the blob, if all nodes
// are up and others are all nodes beside it.
func (b *Blobs) owns(hash compute.Hash, others []Node) bool {
	own := weight(hash, b.cfg.Self)
	before := 0
	for _, n := range others {
		if other := weight(hash, n.ID); bytes.Compare(other[:], own[:]) > 0 {
			before++
		}
	}
	return before < max(b.cfg.Replicas, 1)
}
