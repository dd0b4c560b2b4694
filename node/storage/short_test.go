package storage

import (
	"context"
	"sync/atomic"
	"testing"

	"berth/compute"
)

// TestSmallBlobsGoAsMessages puts blobs between nodes that know messages, and then to
// nodes that do not.
func TestSmallBlobsGoAsMessages(t *testing.T) {
	c := newCluster(t, 3, 3)
	var messages atomic.Int32
	known := true
	for _, b := range c.nodes {
		b.cfg.Message = func(ctx context.Context, node compute.NodeID, message []byte) error {
			messages.Add(1)
			if !known {
				return ErrNotShort
			}
			return c.nodes[node].ServeMessage(ctx, message)
		}
	}
	from := c.nodes[nodeID(0)]
	put := func(data []byte, wantMessages int32, wantStreams int) {
		t.Helper()
		messages.Store(0)
		clear(c.asked)
		hash, err := from.Put(t.Context(), data)
		if err != nil || len(c.have(hash)) != 3 {
			t.Fatalf("on %v, %v", c.have(hash), err)
		}
		if streams := c.asked[nodeID(1)] + c.asked[nodeID(2)]; messages.Load() != wantMessages || streams != wantStreams {
			t.Errorf("%d bytes: %d messages and %d streams", len(data), messages.Load(), streams)
		}
	}
	put([]byte("small"), 2, 0)
	put(make([]byte, maxShort+1), 0, 2)
	known = false
	put([]byte("to older nodes"), 2, 2)
	for name, message := range map[string][]byte{
		"short": []byte("x"), "other bytes": append(request{op: opPut, size: 1}.encode(), 'x'),
		"cut": request{op: opPut, size: 1}.encode(), "a get": request{op: opGet}.encode(),
	} {
		if err := from.ServeMessage(t.Context(), message); compute.CodeOf(err) != compute.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargeBlobsAreWrittenWhole puts blobs of sizes around those of writes past the
// cache.
func TestLargeBlobsAreWrittenWhole(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	for _, size := range []int{
		maxJournaled, maxJournaled + 1, directLeast - 1, directLeast, directLeast + 1, directPiece, directPiece + directAlign,
		2*directPiece + 1, MaxBlob,
	} {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i >> 8)
		}
		hash, err := s.Put(data)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(hash); err != nil || len(got) != size {
			t.Errorf("%d bytes: got %d, %v", size, len(got), err)
		}
		hash, err = s.Put(data[1:]) // Its memory is not aligned.
		if err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(hash); err != nil || len(got) != size-1 {
			t.Errorf("%d bytes: got %d, %v", size-1, len(got), err)
		}
	}
}
