package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/node/objects"
	"berth/node/statetest"
)

// bench is the backend over a state without Raft and blobs in memory.
type bench struct {
	*store
	*statetest.State

	t   *testing.T
	ctx context.Context // Has the account of the test.

	mu     sync.Mutex
	blobs  map[compute.Hash][]byte
	ids    uint16
	before func(command.Command) // Is called before a command is applied; nil for nothing.
	lost   bool                  // The next answer is lost.
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, State: statetest.New(t), blobs: make(map[compute.Hash][]byte)}
	b.Must(command.RegisterNode{Node: compute.Node{ID: b.Node, Name: "n1", Format: format.Newest}})
	b.Must(command.SetFormat{Term: 1, Format: format.Newest})
	now := time.Unix(1e9, 0)
	keys := testKeys("the same on every node, of 32 bytes", &now)
	newID := func() compute.UUID { b.ids++; return compute.UUID{200, byte(b.ids >> 8), byte(b.ids)} }
	read := func(context.Context) (*fsm.View, error) { return b.Machine.View(), nil }
	wait := func(context.Context, uint64) (*fsm.View, error) { return b.Machine.View(), nil }
	logger := slog.New(slog.DiscardHandler)
	content := objects.New(objects.Config{
		Blobs: b, Keys: plainKeys{}, Propose: b.propose, Wait: wait, NewID: newID, Now: keys.Now, Logger: logger,
		SealsChunks: func() bool { return false },
	})
	b.store = &store{
		cfg: Config{
			Keys: keys, Objects: content, View: b.Machine.View, Read: read, Propose: b.propose, Wait: wait,
			NewID: newID, Logger: logger,
		},
		logger: logger, life: t.Context(),
	}
	c := keys.Mint(b.Actor, compute.UUID{}, compute.Hash{2})
	b.ctx = context.WithValue(t.Context(), "account", auth.Account{Access: c.Access, SessionToken: c.Token}) //nolint:staticcheck // The library's key.
	return b
}

// propose applies a command.
func (b *bench) propose(_ context.Context, cmd command.Command) (command.Result, uint64, error) {
	if before := b.before; before != nil {
		b.before = nil
		before(cmd)
	}
	frame, err := command.Encode(cmd)
	if err != nil {
		return command.Result{}, 0, err
	}
	b.Index++
	result := b.Machine.ApplyFrames(b.Index, frame)[0]
	if b.lost {
		b.lost = false
		return command.Result{}, 0, compute.Errorf(compute.CodeUnavailable, "the answer is lost")
	}
	return result, b.Index, nil
}

func (b *bench) Put(_ context.Context, data []byte) (compute.Hash, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hash := compute.Hash(sha256.Sum256(data))
	b.blobs[hash] = append([]byte(nil), data...)
	return hash, nil
}

func (b *bench) Lend(ctx context.Context, data []byte) (compute.Hash, bool, error) {
	hash, err := b.Put(ctx, data)
	return hash, true, err
}

func (b *bench) Get(_ context.Context, hash compute.Hash) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.blobs[hash]
	if !ok {
		return nil, compute.Errorf(compute.CodeNotFound, "no blob")
	}
	return append([]byte(nil), data...), nil
}

func (*bench) Peek(compute.Hash, []byte) ([]byte, bool) { return nil, false }

// plainKeys stands in for encryption.
type plainKeys struct{}

func (plainKeys) New(org compute.OrgID) (*compute.Bucket, error) {
	return &compute.Bucket{Org: org, Sealed: []byte{1}}, nil
}

func (plainKeys) Open(*compute.Bucket) (objects.Key, error) { return plainKey{}, nil }

type plainKey struct{}

func (plainKey) Seal(data, _ []byte) ([]byte, error)   { return append([]byte{1}, data...), nil }
func (plainKey) Open(sealed, _ []byte) ([]byte, error) { return sealed[1:], nil }

func (k plainKey) SealChunk(dst, data, kind []byte) ([]byte, objects.IV, error) {
	sealed, err := k.Seal(data, kind)
	return append(dst, sealed...), objects.IV{}, err
}

func (k plainKey) OpenChunk(sealed, kind []byte, _ objects.IV) ([]byte, error) {
	return k.Open(sealed, kind)
}

// bucket is the name of the account's bucket.
func (b *bench) bucket() *string { return new(BucketOf(b.Actor.Org)) }

// codeOf returns the code of an error as clients see it, "" for none.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[s3err.S3Error](err); ok {
		return e.BaseError().Code
	}
	return err.Error()
}
