package worker

import (
	"context"
	"errors"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
)

// Upstream is what a worker asks of the servers.
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
	if e, coded := errors.AsType[*compute.Error](err); coded && e.Detail == rpc.NoMethod {
		return nil, compute.Errorf(compute.CodeUnavailable, "The servers that answer are older than this worker: %w", err)
	}
	return answer, err
}
