package executor

import (
	"context"
	"errors"
	"fmt"

	"berth/compute"
)

// errInputs means that something that an execution needs could not be read.
var errInputs = errors.New("the code could not be read")

// inputs reads from other nodes what executions need before they start.
type inputs struct {
	calls     *calls
	bundles   Bundles
	blobs     Blobs     // nil: executions have no uploaded files.
	variables Variables // nil for none.
}

// bundle returns the execution's bundle, from the reference itself or from a store.
func (i *inputs) bundle(ctx context.Context, ref compute.BundleRef) (*compute.Bundle, error) {
	if len(ref.Inline) > 0 {
		bundle, err := compute.DecodeBundle(ref.Inline)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errInputs, err)
		}
		return bundle, nil
	}
	var bundle *compute.Bundle
	err := i.calls.input(ctx, func(ctx context.Context) (err error) {
		bundle, err = i.bundles.Bundle(ctx, ref)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errInputs, err)
	}
	return bundle, nil
}
