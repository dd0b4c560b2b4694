package archives_test

import (
	"context"
	"testing"

	"berth/compute"
	"berth/fsm/archive"
	"berth/node/archives"
)

// TestOpeningStaysHere opens an archive within a context that stays here, and within another.
func TestOpeningStaysHere(t *testing.T) {
	asks := make(chan error, 2)
	c := archives.NewCache(func(ctx context.Context, _ compute.Hash) ([]byte, error) {
		asks <- compute.MayAsk(ctx)
		return nil, compute.Errorf(compute.CodeNotFound, "there is none")
	})
	defer c.Close()
	for _, stays := range []bool{true, false} {
		ctx := t.Context()
		if stays {
			ctx = compute.StayHere(ctx)
		}
		if _, err := c.Open(ctx, new(archive.Record)); compute.CodeOf(err) != compute.CodeUnavailable {
			t.Errorf("stays %v: %v", stays, err)
		}
		if refusal := <-asks; (refusal != nil) != stays {
			t.Errorf("stays %v: others are asked: %v", stays, refusal == nil)
		}
	}
}
