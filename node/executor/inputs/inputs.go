package inputs

import (
	"context"
	"errors"
	"fmt"

	"berth/compute"
	"berth/node/executor/live"
)

// ErrUnread means that something that an execution needs could not be read.
var ErrUnread = errors.New("the code could not be read")

// Bundles provides the bundles of executions. compute.CodeNotFound means that no
// node has the bundle.
type Bundles interface {
	Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error)
}

// Blobs reads the files of executions, and stores what they leave. The codes of
// its errors are those of package storage.
type Blobs interface {
	// Get returns a manifest, or a chunk that it names.
	Get(ctx context.Context, hash compute.Hash) ([]byte, error)
	// Put returns once data is durable.
	Put(ctx context.Context, data []byte) (compute.Hash, error)
}

// Variables returns the variables that the user of a live attempt keeps for all
// own executions.
type Variables func(ctx context.Context, w compute.Work) ([]compute.EnvVariable, error)

// Inputs reads from other nodes what executions need before they start.
type Inputs struct {
	calls     *live.Calls
	bundles   Bundles
	blobs     Blobs     // nil: executions have no uploaded files.
	variables Variables // nil for none.
}

// New returns inputs, without blobs where executions have no uploaded files and without
// variables where users keep none.
func New(calls *live.Calls, bundles Bundles, blobs Blobs, variables Variables) *Inputs {
	return &Inputs{calls: calls, bundles: bundles, blobs: blobs, variables: variables}
}

// Bundle returns the execution's bundle, from the reference itself or from a store.
func (i *Inputs) Bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	if len(ref.Inline) > 0 {
		bundle, err := compute.DecodeBundle(ref.Inline)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnread, err)
		}
		return bundle, nil
	}
	var bundle *compute.Bundle
	err := i.calls.Input(ctx, func(ctx context.Context) (err error) {
		bundle, err = i.bundles.Bundle(ctx, ref)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnread, err)
	}
	return bundle, nil
}
