package storage

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"berth/compute"
	"berth/fault"
)

const (
	maxServing = 16                     // Concurrent operations of other nodes, each of up to MaxBlob in memory.
	maxShorts  = 256                    // The same of messages, each of up to maxShort.
	getHedge   = 500 * time.Millisecond // How long a get waits for one node before it asks the next too.
	putHedge   = 2 * time.Second        // The same for a put, which waits for a disk.
	retryAfter = 2 * time.Second        // Retry-After when too few nodes could store a blob.
)

// Peers opens streams to other nodes.
type Peers interface {
	// Open has the node's Blobs serve req on the stream that it returns. Close
	// may be called while another goroutine reads or writes.
	Open(ctx context.Context, node compute.NodeID, req []byte) (io.ReadWriteCloser, error)
}

// Config holds the settings and dependencies of Blobs.
type Config struct {
	Self  compute.NodeID
	Store *Store
	Peers Peers
	// Message has the node's ServeMessage serve a message; nil if nodes know none. The
	// error wraps ErrNotShort if that one knows none.
	Message func(ctx context.Context, node compute.NodeID, message []byte) error
	// Mirror returns a blob from its copy outside of the cluster; nil if there are none. The
	// code is not_found if this one has none.
	Mirror   func(ctx context.Context, hash compute.Hash) ([]byte, error)
	Nodes    func() []Node // All nodes that store blobs, including this one.
	Replicas int           // Copies of a blob; fewer only where there are fewer nodes.
	Logger   *slog.Logger
	Metrics  prometheus.Registerer
}

// Blobs stores blobs on several nodes. Its methods are safe for concurrent use.
type Blobs struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	serving chan struct{} // Holds one token per operation that is served.
	shorts  chan struct{} // The same for messages.
}

// New returns this node's view of the cluster's blobs.
func New(cfg Config) *Blobs {
	return &Blobs{
		cfg:     cfg,
		logger:  cfg.Logger.With("part", "storage"),
		metrics: newMetrics(cfg.Metrics),
		serving: make(chan struct{}, maxServing),
		shorts:  make(chan struct{}, maxShorts),
	}
}

// Put returns once data is durable on the configured number of nodes. The code
// is no_space when their disks are full and unavailable when too few nodes
// answer. Put may be repeated.
func (b *Blobs) Put(ctx context.Context, data []byte) (compute.Hash, error) {
	hash, _, err := b.Lend(ctx, data)
	return hash, err
}

// Lend is Put. It also reports whether data is free again: a node that did not answer may
// still be sent it, or write it.
func (b *Blobs) Lend(ctx context.Context, data []byte) (hash compute.Hash, free bool, err error) {
	defer func() { b.metrics.count("put", err) }()
	hash = sha256.Sum256(data)
	if len(data) > MaxBlob {
		return hash, true, compute.Errorf(compute.CodeTooLarge, "A blob may have at most %d bytes.", MaxBlob)
	}
	nodes := b.cfg.Nodes()
	wanted := min(max(b.cfg.Replicas, 1), len(nodes))
	up := slices.DeleteFunc(owners(hash, nodes), func(n Node) bool { return !n.Up })
	slices.SortStableFunc(up, leavingLast)
	put := func(ctx context.Context, node compute.NodeID) ([]byte, error) {
		return nil, b.putOn(ctx, node, hash, data)
	}
	taken, failed, late := hedged(ctx, up, wanted, putHedge, put)
	free = late == 0 && len(failed) == 0
	fault.Point("storage.put.taken")
	switch {
	case len(taken) == wanted && wanted > 0:
		return hash, free, nil
	case ctx.Err() != nil:
		return hash, free, fmt.Errorf("put blob: %w", ctx.Err())
	}
	return hash, free, tooFew(len(taken), wanted, failed)
}

// tooFew returns the reason for which a blob could not be put.
func tooFew(taken, wanted int, failed []answer) error {
	err := joined(failed)
	for _, a := range failed {
		if compute.CodeOf(a.err) == compute.CodeNoSpace {
			return compute.Errorf(compute.CodeNoSpace,
				"The disks are full: only %d of %d nodes could take the data: %w", taken, wanted, err)
		}
	}
	if err == nil {
		return compute.Errorf(compute.CodeUnavailable,
			"Only %d of %d nodes could take the data: no other node is up.", taken, max(wanted, 1)).Retry(retryAfter)
	}
	return compute.Errorf(compute.CodeUnavailable,
		"Only %d of %d nodes could take the data: %w", taken, wanted, err).Retry(retryAfter)
}

// putOn makes the blob durable on one node. The caller has compared data with hash.
func (b *Blobs) putOn(ctx context.Context, node compute.NodeID, hash compute.Hash, data []byte) error {
	if node == b.cfg.Self {
		return b.cfg.Store.putAs(hash, data)
	}
	if tried, err := b.putShort(ctx, node, hash, data); tried {
		return err
	}
	_, err := b.ask(ctx, node, request{op: opPut, hash: hash, size: len(data)}, data)
	return err
}

// putLocal makes the blob durable on this node, if data matches its hash.
func (b *Blobs) putLocal(hash compute.Hash, data []byte) error {
	if sha256.Sum256(data) != hash {
		return compute.Errorf(compute.CodeInvalid, "The data is not blob %s.", Name(hash))
	}
	return b.cfg.Store.putAs(hash, data)
}

// Get returns the blob, from this disk, from the other nodes in the order of its
// owners, or from the mirror. It restores a missing or damaged copy that it meets
// on an owner. The code is not_found when everybody answers that they have none,
// and unavailable when some did not answer.
func (b *Blobs) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	data, failed, err := b.read(ctx, hash)
	if err == nil || b.cfg.Mirror == nil || ctx.Err() != nil {
		return data, err
	}
	data, mirrored := b.cfg.Mirror(ctx, hash)
	switch {
	case mirrored == nil:
		b.logger.Warn("blob read from the mirror: no server returned it", "first", Name(hash))
		b.heal(ctx, hash, data, b.wanted(owners(hash, b.cfg.Nodes())), failed)
		return data, nil
	case compute.CodeOf(mirrored) != compute.CodeNotFound:
		return nil, unreadable(hash, append(failed, answer{err: mirrored}))
	}
	return nil, err
}

// GetFromNodes is Get without the mirror: not_found says that no node has the blob.
func (b *Blobs) GetFromNodes(ctx context.Context, hash compute.Hash) ([]byte, error) {
	data, _, err := b.read(ctx, hash)
	return data, err
}

// wanted returns those of the owners of a blob that should have it.
func (b *Blobs) wanted(owners []Node) []Node { return owners[:min(b.Replicas(), len(owners))] }

// read is GetFromNodes. It also returns what the nodes answered that did not return the blob.
func (b *Blobs) read(ctx context.Context, hash compute.Hash) (data []byte, failed []answer, err error) {
	defer func() { b.metrics.count("get", err) }()
	data, err = b.getLocal(hash)
	if err == nil {
		return data, nil, nil
	}
	nodes := owners(hash, b.cfg.Nodes())
	get := func(ctx context.Context, node compute.NodeID) ([]byte, error) { return b.getFrom(ctx, node, hash) }
	given, failed, _ := hedged(ctx, b.others(nodes), 1, getHedge, get)
	if len(given) == 0 && ctx.Err() == nil && absent(failed) {
		// A copy may have moved from a node that was asked late to one that was asked early.
		given, failed, _ = hedged(ctx, b.others(nodes), 1, getHedge, get)
	}
	switch {
	case len(given) > 0:
		b.heal(ctx, hash, given[0].data, b.wanted(nodes), failed)
		return given[0].data, nil, nil
	case ctx.Err() != nil:
		return nil, failed, fmt.Errorf("get blob: %w", ctx.Err())
	}
	return nil, failed, unreadable(hash, failed)
}

// heal puts the blob on this node and on the nodes that reported that they have
// none, as far as they are among its owners.
func (b *Blobs) heal(ctx context.Context, hash compute.Hash, data []byte, owners []Node, failed []answer) {
	lacking := []compute.NodeID{b.cfg.Self}
	for _, a := range failed {
		if compute.CodeOf(a.err) == compute.CodeNotFound {
			lacking = append(lacking, a.node)
		}
	}
	for _, n := range owners {
		if !slices.Contains(lacking, n.ID) {
			continue
		}
		if err := b.putOn(ctx, n.ID, hash, data); err != nil {
			b.logger.Warn("blob not healed", "node", n.ID, "err", err)
		}
	}
}

// others returns nodes without this one.
func (b *Blobs) others(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.ID == b.cfg.Self })
}

// getLocal returns the blob from this disk.
func (b *Blobs) getLocal(hash compute.Hash) ([]byte, error) {
	data, err := b.cfg.Store.Get(hash)
	if errors.Is(err, ErrCorrupt) {
		b.metrics.damaged.Inc()
		b.logger.Error("blob damaged", "err", err)
		return nil, notHere(hash) // Damaged blobs are set aside.
	}
	return data, err
}

// Peek reads into buf the bytes that this disk has as the blob, if there are any and they
// are fewer than buf has. They are not compared with the hash: the caller authenticates
// them in another way, and calls Get if they are wrong, which repairs the disk.
func (b *Blobs) Peek(hash compute.Hash, buf []byte) ([]byte, bool) {
	data, err := b.cfg.Store.peek(hash, buf)
	if err != nil {
		return nil, false
	}
	b.metrics.count("peek", nil)
	return data, true
}

// getFrom returns the blob from another node.
func (b *Blobs) getFrom(ctx context.Context, node compute.NodeID, hash compute.Hash) ([]byte, error) {
	data, err := b.ask(ctx, node, request{op: opGet, hash: hash}, nil)
	if err == nil && sha256.Sum256(data) != hash {
		return nil, fmt.Errorf("ask node %s: %w", node, ErrCorrupt)
	}
	return data, err
}

// notHere returns the error of a node that does not have the blob.
func notHere(hash compute.Hash) error {
	return compute.Errorf(compute.CodeNotFound, "There is no blob %s.", Name(hash))
}

// unreadable returns the reason for which no node returned the blob. The blob
// is known to be absent only when all nodes have answered.
func unreadable(hash compute.Hash, failed []answer) error {
	if absent(failed) {
		return notHere(hash)
	}
	return compute.Errorf(compute.CodeUnavailable,
		"Blob %s cannot be read now: %w", Name(hash), joined(failed)).Retry(retryAfter)
}

// absent reports whether all nodes answered that they do not have the blob.
func absent(failed []answer) bool {
	return !slices.ContainsFunc(failed, func(a answer) bool { return compute.CodeOf(a.err) != compute.CodeNotFound })
}

// Delete removes the blob from all nodes that are up. It is for blobs that
// nothing else can refer to. Sweep removes all others.
func (b *Blobs) Delete(ctx context.Context, hash compute.Hash) (err error) {
	defer func() { b.metrics.count("delete", err) }()
	for _, n := range b.cfg.Nodes() {
		switch {
		case n.ID == b.cfg.Self:
			err = errors.Join(err, b.cfg.Store.Delete(hash))
		case n.Up:
			_, e := b.ask(ctx, n.ID, request{op: opDelete, hash: hash}, nil)
			err = errors.Join(err, e)
		}
	}
	return err
}

// Sweep applies Store.Sweep to this node's disk.
func (b *Blobs) Sweep(live func(compute.Hash) bool, minAge time.Duration) (removed int, err error) {
	defer func() { b.metrics.count("sweep", err) }()
	return b.cfg.Store.Sweep(live, minAge)
}

// acquire waits for one of some slots, to serve an operation. The caller calls release.
func acquire(ctx context.Context, slots chan struct{}) (release func(), err error) {
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, compute.Errorf(compute.CodeUnavailable, "The node is busy: %w", ctx.Err())
	}
}
