package worker

import (
	"context"
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
