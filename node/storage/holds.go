package storage

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"berth/compute"
)

// Limits of questions about blobs.
const (
	maxAsked  = 1 << 12          // Blobs that one question names.
	holdsTime = 10 * time.Second // For one question. A node that does not answer must not hold up a repair.
	fullTime  = 2 * time.Second  // The same if it names no blob.
)

// holding is the answer of a node to the question which blobs it has.
type holding struct {
	full     bool // Its disk took no blob when it last tried.
	replicas int  // Copies that a blob has by its configuration.
	have     map[compute.Hash]bool
}

// shortage remembers that the disk took no blob of some size, until it takes one of that size.
type shortage struct{ bytes atomic.Int64 }

// record records the outcome of writing a blob.
func (s *shortage) record(size int, err error) {
	failed := s.bytes.Load()
	switch {
	case compute.CodeOf(err) == compute.CodeNoSpace && (failed == 0 || int64(size) < failed):
		s.bytes.Store(int64(max(size, 1)))
	case err == nil && failed > 0 && int64(size) >= failed:
		s.bytes.Store(0)
	}
}

// Full reports whether this disk had no space for a blob, and has taken none of that size
// since.
func (b *Blobs) Full() bool { return b.cfg.Store.shortage.bytes.Load() > 0 }

// TrySpace ends the shortage of a disk that has space again for what it took no blob of, so
// that a node of which nobody wants blobs does not count as full for ever.
func (b *Blobs) TrySpace() {
	if size := b.cfg.Store.shortage.bytes.Load(); size > 0 && b.cfg.Store.hasSpace(size) {
		b.cfg.Store.shortage.bytes.CompareAndSwap(size, 0)
	}
}

// holds asks a node which of hashes it has durably. An older node refuses. The names go in
// their order, so that each question is about few directories.
func (b *Blobs) holds(ctx context.Context, node compute.NodeID, hashes []compute.Hash) (holding, error) {
	out := holding{have: make(map[compute.Hash]bool, len(hashes))}
	hashes = slices.SortedFunc(slices.Values(hashes), byHash)
	for first := true; first || len(hashes) > 0; first = false {
		some := hashes[:min(len(hashes), maxAsked)]
		hashes = hashes[len(some):]
		data := make([]byte, 0, len(some)*len(compute.Hash{}))
		for _, hash := range some {
			data = append(data, hash[:]...)
		}
		answer, err := b.askOnce(ctx, node, data)
		if err != nil {
			return out, err
		}
		if len(answer) != answerHead+len(some) {
			return out, fmt.Errorf("ask node %s: %d bytes say which of %d blobs it has", node, len(answer), len(some))
		}
		out.full, out.replicas = answer[0] == 1, int(answer[1])
		for i, hash := range some {
			if answer[answerHead+i] == 1 {
				out.have[hash] = true
			}
		}
	}
	return out, nil
}

// askOnce asks one question of holds.
func (b *Blobs) askOnce(ctx context.Context, node compute.NodeID, names []byte) ([]byte, error) {
	limit := holdsTime
	if len(names) == 0 {
		limit = fullTime
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.ask(ctx, node, request{op: opHolds, size: len(names)}, names)
}

// answerHead is how long an answer to holds is that names no blob.
const answerHead = 2

// answerHolds answers another node's holds: a byte for a full disk, one with Replicas, and
// one for each blob.
func (b *Blobs) answerHolds(question []byte) ([]byte, error) {
	const width = len(compute.Hash{})
	if len(question)%width != 0 {
		return nil, compute.Errorf(compute.CodeInvalid, "not the names of blobs")
	}
	answer := []byte{flag(b.Full()), byte(min(b.Replicas(), math.MaxUint8))}
	dirs := make(map[string]bool) // Directories of blobs whose names may not be durable.
	for raw := range slices.Chunk(question, width) {
		has := b.cfg.Store.Has(compute.Hash(raw))
		if answer = append(answer, flag(has)); has {
			dirs[filepath.Dir(b.cfg.Store.path(compute.Hash(raw)))] = true
		}
	}
	for dir := range dirs {
		if err := syncDir(dir); err != nil {
			return nil, fmt.Errorf("sync blobs: %w", err)
		}
	}
	i := answerHead
	for raw := range slices.Chunk(question, width) {
		answer[i] &= flag(b.cfg.Store.Has(compute.Hash(raw))) // It may be gone meanwhile.
		i++
	}
	return answer, nil
}

func flag(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// askHolds asks several nodes at the same time. The answers of those that fail are left out.
func (b *Blobs) askHolds(ctx context.Context, questions map[compute.NodeID][]compute.Hash) map[compute.NodeID]holding {
	var mu sync.Mutex
	answers := make(map[compute.NodeID]holding, len(questions))
	var asked sync.WaitGroup
	for node, hashes := range questions {
		asked.Go(func() {
			h, err := b.holds(ctx, node, hashes)
			if err != nil {
				b.logger.Debug("node does not report its blobs", "node", node, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[node] = h
		})
	}
	asked.Wait()
	return answers
}

// FullNodes asks the other nodes that are up, except those of without, whether their disks are
// full, and returns those that are, in the order of Nodes.
func (b *Blobs) FullNodes(ctx context.Context, without []compute.NodeID) (full []compute.NodeID) {
	questions := make(map[compute.NodeID][]compute.Hash)
	for _, n := range b.others(b.cfg.Nodes()) {
		if n.Up && !slices.Contains(without, n.ID) {
			questions[n.ID] = nil
		}
	}
	answers := b.askHolds(ctx, questions)
	for _, n := range b.cfg.Nodes() {
		if answers[n.ID].full {
			full = append(full, n.ID)
		}
	}
	return full
}

// before returns those of others that come before this node in the order of the blob.
func (b *Blobs) before(hash compute.Hash, others []Node) (ids []compute.NodeID) {
	own := weight(hash, b.cfg.Self)
	for _, n := range others {
		if other := weight(hash, n.ID); bytes.Compare(other[:], own[:]) > 0 {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// Copies counts the copies of each of hashes on the other nodes that are up, except those of
// without. Nodes that do not answer count as if they had none.
func (b *Blobs) Copies(ctx context.Context, hashes []compute.Hash, without []compute.NodeID) map[compute.Hash]int {
	questions := make(map[compute.NodeID][]compute.Hash)
	for _, n := range b.others(b.cfg.Nodes()) {
		if n.Up && !slices.Contains(without, n.ID) {
			questions[n.ID] = hashes
		}
	}
	copies := make(map[compute.Hash]int, len(hashes))
	for _, h := range b.askHolds(ctx, questions) {
		for hash := range h.have {
			copies[hash]++
		}
	}
	return copies
}

// Surplus returns those of hashes, sorted, of which this disk has a copy although enough
// nodes come before this one to be their owners.
func (b *Blobs) Surplus(hashes iter.Seq[compute.Hash]) (surplus []compute.Hash) {
	stay := b.staying()
	for hash := range hashes {
		if len(b.before(hash, stay)) >= b.Replicas() && b.cfg.Store.Has(hash) {
			surplus = append(surplus, hash)
		}
	}
	slices.SortFunc(surplus, byHash)
	return slices.Compact(surplus)
}

func byHash(a, b compute.Hash) int { return bytes.Compare(a[:], b[:]) }

// Staying counts the other nodes that are up, stay, and are not of without.
func (b *Blobs) Staying(without []compute.NodeID) int {
	return len(slices.DeleteFunc(b.staying(), func(n Node) bool { return slices.Contains(without, n.ID) }))
}

// staying returns the other nodes that are up and are not about to leave.
func (b *Blobs) staying() []Node {
	return slices.DeleteFunc(b.others(b.cfg.Nodes()), func(n Node) bool { return !n.Up || n.Leaving })
}

// Trim removes this disk's copies of some surplus blobs: of those that were put longer ago
// than minAge and of which enough nodes report a durable copy that come before this one in
// the blob's order. That order does not depend on which nodes exist, so the first owners of
// a blob never remove it, whichever nodes trim at the same time. All nodes that stay have
// to answer: enough are as many as the one wants that is configured for the most copies.
func (b *Blobs) Trim(ctx context.Context, surplus []compute.Hash, minAge time.Duration) (removed int, err error) {
	defer func() { b.metrics.count("trim", err) }()
	stay := b.staying()
	questions := make(map[compute.NodeID][]compute.Hash)
	for _, n := range stay {
		questions[n.ID] = nil
	}
	for _, hash := range surplus {
		for _, id := range b.before(hash, stay) {
			questions[id] = append(questions[id], hash)
		}
	}
	copies, enough := make(map[compute.Hash]int, len(surplus)), b.Replicas()
	answers := b.askHolds(ctx, questions)
	if len(answers) < len(questions) {
		return 0, nil
	}
	for _, h := range answers {
		enough = max(enough, h.replicas)
		for hash := range h.have {
			copies[hash]++
		}
	}
	limit := b.cfg.Store.now().Add(-minAge)
	for _, hash := range surplus {
		if copies[hash] < enough {
			continue
		}
		gone, err := b.cfg.Store.removeOld(b.cfg.Store.path(hash), limit)
		if err != nil {
			return removed, fmt.Errorf("trim blobs: %w", err)
		}
		if gone {
			removed++
		}
	}
	return removed, nil
}
