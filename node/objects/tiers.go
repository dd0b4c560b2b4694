package objects

import (
	"context"

	"berth/compute"
)

// Tiers keeps blobs in the first of several places, and reads them from all, so that
// they can be moved while they are used.
type Tiers []Blobs

// Put keeps a blob in the first place.
func (t Tiers) Put(ctx context.Context, data []byte) (compute.Hash, error) {
	return t[0].Put(ctx, data)
}

// Lend keeps a blob in the first place.
func (t Tiers) Lend(ctx context.Context, data []byte) (hash compute.Hash, free bool, err error) {
	return t[0].Lend(ctx, data)
}

// Get returns a blob from the first place that has it. The error says that nobody has it
// only if each place does.
func (t Tiers) Get(ctx context.Context, hash compute.Hash) (data []byte, err error) {
	var unknown error
	for _, place := range t {
		if data, err = place.Get(ctx, hash); err == nil {
			return data, nil
		}
		if compute.CodeOf(err) != compute.CodeNotFound && unknown == nil {
			unknown = err
		}
	}
	if unknown != nil {
		return nil, unknown
	}
	return nil, err
}

// Peek implements Blobs.
func (t Tiers) Peek(hash compute.Hash, buf []byte) ([]byte, bool) {
	for _, place := range t {
		if data, ok := place.Peek(hash, buf); ok {
			return data, true
		}
	}
	return nil, false
}
