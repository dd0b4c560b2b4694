package objects

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/node/objects/md5pairs"
)

// IV is the synthetic IV of a chunk: a keyed hash of its plaintext.
type IV = [16]byte

// Key encrypts and decrypts for one bucket.
type Key interface {
	Seal(data, context []byte) ([]byte, error)
	Open(sealed, context []byte) ([]byte, error)

	// SealChunk is Seal for much data, and appends to dst, which data does not overlap.
	// OpenChunk opens what either returned, and may overwrite sealed. Unless iv is zero, it
	// returns only the data with that IV.
	SealChunk(dst, data, context []byte) (sealed []byte, iv IV, err error)
	OpenChunk(sealed, context []byte, iv IV) ([]byte, error)
}

// Keys makes and opens the keys of buckets.
type Keys interface {
	New(org compute.OrgID) (*compute.Bucket, error)
	Open(b *compute.Bucket) (Key, error)
}

// Blobs keeps blobs on several nodes.
type Blobs interface {
	Put(ctx context.Context, data []byte) (compute.Hash, error)
	// Lend is Put. It also reports whether data is free again: nothing uses it any more.
	Lend(ctx context.Context, data []byte) (hash compute.Hash, free bool, err error)
	// Get returns a blob, which the caller may change.
	Get(ctx context.Context, hash compute.Hash) ([]byte, error)
	// Peek reads into buf what this node's disk has as a blob, if there is something shorter
	// than buf. It is not checked: the caller has to, and calls Get if it is wrong.
	Peek(hash compute.Hash, buf []byte) ([]byte, bool)
}

// Config holds the settings and dependencies of a Store.
type Config struct {
	Blobs   Blobs
	Keys    Keys
	Propose func(ctx context.Context, cmd command.Command) (command.Result, uint64, error)
	Wait    func(ctx context.Context, index uint64) (*fsm.View, error) // A view that includes the index.
	NewID   func() compute.UUID
	Now     func() time.Time
	Logger  *slog.Logger

	// SealsChunks reports whether every server opens what SealChunk returns.
	SealsChunks func() bool

	// Checkpoint is how long an upload lasts before it records what it has: less than
	// blobs are young. Zero for 20 minutes.
	Checkpoint time.Duration
}

// Limits of a node.
const (
	checkpoint   = 20 * time.Minute
	chunksAtOnce = 12              // Large chunks in memory, of all uploads.
	chunksAhead  = 8               // The same that are read before they are sent, of all reads.
	chunkShare   = 2               // The part of them that one organization may have: a half.
	uploadAhead  = 2               // Chunks of one upload on their way to disks.
	readAhead    = 2               // Chunks of one read that come while one is sent,
	slowChunk    = 2 * time.Second // unless sending one takes longer.
	firstBuffer  = 4 << 10         // Bytes of a chunk that are read at first.
	smallBuffer  = 256 << 10
	chunkTime    = 5 * time.Minute // How long a large chunk may take to come, and each behind the first.
)

// Store stores the content of objects. Its methods are safe for concurrent use.
type Store struct {
	cfg    Config
	logger *slog.Logger
	places *places
	ahead  *places
	cache  *cache
	md5s   md5pairs.Hasher
}

// New returns a Store.
func New(cfg Config) *Store {
	if cfg.Checkpoint == 0 {
		cfg.Checkpoint = checkpoint
	}
	return &Store{
		cfg: cfg, logger: cfg.Logger.With("part", "objects"),
		places: newPlaces(chunksAtOnce, chunksAtOnce/chunkShare),
		ahead:  newPlaces(chunksAhead, chunksAhead/chunkShare), cache: newCache(),
	}
}

// Bucket returns the bucket of the organization that an actor acts in. It makes the
// first one, for which it moves view on.
func (s *Store) Bucket(ctx context.Context, view **fsm.View, actor command.Actor) (*compute.Bucket, error) {
	if b := (*view).Bucket(actor.Org); b != nil {
		return b, nil
	}
	if err := (*view).AllowsObjects(); err != nil {
		return nil, err
	}
	made, err := s.cfg.Keys.New(actor.Org)
	if err != nil {
		return nil, err
	}
	result, index, err := s.cfg.Propose(ctx, command.CreateBucket{Actor: actor, Bucket: *made})
	if err != nil {
		return nil, err
	}
	if result.Refusal != nil {
		return nil, result.Refusal
	}
	if *view, err = s.cfg.Wait(ctx, index); err != nil {
		return nil, err
	}
	b := (*view).Bucket(actor.Org)
	if b == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "The bucket is not there yet.").Retry(time.Second)
	}
	return b, nil
}

// manifestOf returns the manifest of a blob that is one.
func (s *Store) manifestOf(ctx context.Context, blob compute.Hash) (*manifest, error) {
	if m := s.cache.get(blob); m != nil {
		return m, nil
	}
	data, err := s.cfg.Blobs.Get(ctx, blob)
	if err != nil {
		return nil, err
	}
	m, err := decodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", compute.Digest(blob), err)
	}
	s.cache.put(blob, m)
	return m, nil
}

// chunksOf returns the chunks of an object or of a part.
func (s *Store) chunksOf(ctx context.Context, blob compute.Hash, whole bool, size int64) ([]chunk, error) {
	switch {
	case blob == (compute.Hash{}):
		return nil, nil
	case whole:
		return []chunk{{blob: blob, size: size}}, nil
	}
	m, err := s.manifestOf(ctx, blob)
	if err != nil {
		return nil, err
	}
	return m.chunks, nil
}

// Meta returns the metadata of an object.
func (s *Store) Meta(ctx context.Context, b *compute.Bucket, o *compute.Object) (*compute.ObjectMeta, error) {
	if o.Whole || o.Blob == (compute.Hash{}) {
		return &compute.ObjectMeta{Type: o.Type}, nil
	}
	m, err := s.manifestOf(ctx, o.Blob)
	if err != nil {
		return nil, err
	}
	if len(m.sealed) == 0 {
		return &compute.ObjectMeta{Type: o.Type}, nil
	}
	key, err := s.cfg.Keys.Open(b)
	if err != nil {
		return nil, err
	}
	return openMeta(key, m.sealed)
}

// SealMeta returns the encrypted metadata of an object that is uploaded in parts, for the
// record of the upload; OpenMeta is its inverse.
func (s *Store) SealMeta(b *compute.Bucket, meta *compute.ObjectMeta) ([]byte, error) {
	key, err := s.cfg.Keys.Open(b)
	if err != nil {
		return nil, err
	}
	return sealMeta(key, meta)
}

// OpenMeta is the inverse of SealMeta.
func (s *Store) OpenMeta(b *compute.Bucket, sealed []byte) (*compute.ObjectMeta, error) {
	if len(sealed) == 0 {
		return new(compute.ObjectMeta), nil
	}
	key, err := s.cfg.Keys.Open(b)
	if err != nil {
		return nil, err
	}
	return openMeta(key, sealed)
}
