package worker

import (
	"context"
	"errors"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
)

// Upstream has the calls of a worker to the servers.
type Upstream interface {
	EachServer(ctx context.Context, do func(ctx context.Context, server compute.NodeID) error) error
	Call(ctx context.Context, node compute.NodeID, method string, request []byte) ([]byte, error)
	ContactAt() time.Duration
}

// ask calls a method of a server, and of the next one when that has not
// answered within each. That no server knows the method is no refusal: one that
// is new enough may answer later.
func ask(ctx context.Context, up Upstream, each time.Duration, method string, req []byte) (answer []byte, err error) {
	err = up.EachServer(ctx, func(ctx context.Context, server compute.NodeID) error {
		ctx, cancel := context.WithTimeout(ctx, each)
		defer cancel()
		answer, err = up.Call(ctx, server, method, req)
		return err
	})
	if err = unlessOlder(err); err != nil {
		return nil, err
	}
	return answer, nil
}

// unlessOlder returns err, or an error for which Older reports true if no server knows
// the method.
func unlessOlder(err error) error {
	if !Older(err) {
		return err
	}
	return compute.Errorf(compute.CodeUnavailable, "The servers that answer are older than this worker: %w", err).
		Named(rpc.NoMethod)
}

// Older reports whether a call failed because the servers that answer are older than
// this worker.
func Older(err error) bool {
	e, coded := errors.AsType[*compute.Error](err)
	return coded && e.Detail == rpc.NoMethod
}
