package worker

import (
	"context"
	"fmt"
	"log/slog"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// Reporter sends the reports of a worker on its attempts to a server.
type Reporter struct{ Up Upstream }

// StartAttempt reports that the user's process started.
func (r Reporter) StartAttempt(ctx context.Context, start compute.AttemptStart) error {
	_, err := ask(ctx, r.Up, askEach, methodStart, rpc.NewCodec().Marshal(start))
	return err
}

// FinishAttempt reports how an attempt ended.
func (r Reporter) FinishAttempt(ctx context.Context, outcome compute.Outcome) error {
	_, err := ask(ctx, r.Up, askEach, methodFinish, rpc.NewCodec().Marshal(outcome))
	return err
}

// SetReady reports whether the code of an attempt is ready.
func (r Reporter) SetReady(ctx context.Context, readiness compute.Readiness) error {
	_, err := ask(ctx, r.Up, askEach, methodReady, rpc.NewCodec().Marshal(readiness))
	return err
}

// Bundles reads what a worker's attempts execute.
type Bundles struct{ Up Upstream }

// Bundle returns the bundle behind a reference.
func (b Bundles) Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	data := ref.Inline
	if len(data) == 0 {
		var err error
		if data, err = ask(ctx, b.Up, askBundle, methodBundle, ref.Hash[:]); err != nil {
			return nil, err
		}
	}
	return compute.DecodeBundle(data)
}

// Blobs reads the files of a worker's attempts, and stores what they leave.
type Blobs struct{ Up Upstream }

// Get returns a manifest, or a chunk that it names.
func (b Blobs) Get(ctx context.Context, hash compute.Hash) ([]byte, error) {
	return ask(ctx, b.Up, askBundle, methodGet, hash[:])
}

// Put returns once data is durable on servers.
func (b Blobs) Put(ctx context.Context, data []byte) (hash compute.Hash, err error) {
	answer, err := ask(ctx, b.Up, askBundle, methodPut, data)
	if err == nil && len(answer) != len(hash) {
		err = fmt.Errorf("store blob: %d bytes are not a hash", len(answer))
	}
	if err != nil {
		return hash, err
	}
	return compute.Hash(answer), nil
}

// Announce has the servers keep this worker's own record right.
func Announce(ctx context.Context, up Upstream, self compute.Node, logger *slog.Logger) {
	request := rpc.NewCodec().Marshal(self)
	for {
		_, err := ask(ctx, up, askEach, methodAnnounce, request)
		if err == nil || ctx.Err() != nil {
			return
		}
		logger.Warn("own record not renewed", "err", err)
		loop.Sleep(ctx, announceIn)
	}
}
