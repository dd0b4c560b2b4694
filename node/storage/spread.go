package storage

import (
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
	taken, failed, _ := hedged(ctx, up, len(up), putHedge, func(ctx context.Context, node compute.NodeID) ([]byte, error) {
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
// unreadable blob from other nodes, or from the mirror. The codes are Get's and Put's:
// not_found says that no node has it, also while the mirror does not answer.
func (b *Blobs) Fetch(ctx context.Context, hash compute.Hash) error {
	if b.cfg.Store.Has(hash) {
		return nil
	}
	data, absent := b.GetFromNodes(ctx, hash)
	if absent != nil {
		var err error
		if data, err = b.Get(ctx, hash); err != nil {
			return absent
		}
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

// Replicas returns how many copies a blob has where there are enough nodes.
func (b *Blobs) Replicas() int { return max(b.cfg.Replicas, 1) }

// Size returns the size of the blob on this disk, or 0 if it is not there.
func (b *Blobs) Size(hash compute.Hash) int { return b.cfg.Store.size(hash) }

// Lacking returns those of hashes, each once, that are missing on this disk
// although this node owns them. Ownership is computed as if all nodes except
// those of without were up and had been up whenever a blob was put. A node of full
// owns only the blobs that it has: the next one in the order takes its place. One that
// does not answer counts as if it had them.
func (b *Blobs) Lacking(
	ctx context.Context, hashes iter.Seq[compute.Hash], without, full []compute.NodeID,
) (lacking []compute.Hash) {
	nodes := slices.DeleteFunc(b.others(b.cfg.Nodes()), func(n Node) bool { return slices.Contains(without, n.ID) })
	seen := make(map[compute.Hash]bool)
	var doubtful []compute.Hash
	questions := make(map[compute.NodeID][]compute.Hash)
	for hash := range hashes {
		if seen[hash] {
			continue
		}
		before := b.before(hash, nodes)
		if b.free(before, full) || b.cfg.Store.Has(hash) {
			continue
		}
		seen[hash] = true
		if len(before) < b.Replicas() {
			lacking = append(lacking, hash)
			continue
		}
		doubtful = append(doubtful, hash)
		for _, id := range before {
			if slices.Contains(full, id) {
				questions[id] = append(questions[id], hash)
			}
		}
	}
	answers := b.askHolds(ctx, questions)
	for _, hash := range doubtful {
		owners := slices.DeleteFunc(b.before(hash, nodes), func(id compute.NodeID) bool {
			answer, answered := answers[id]
			return slices.Contains(full, id) && answered && !answer.have[hash]
		})
		if len(owners) < b.Replicas() {
			lacking = append(lacking, hash)
		}
	}
	return lacking
}

// free reports whether enough of the nodes before this one have space to be the owners.
func (b *Blobs) free(before, full []compute.NodeID) bool {
	n := 0
	for _, id := range before {
		if !slices.Contains(full, id) {
			n++
		}
	}
	return n >= b.Replicas()
}
