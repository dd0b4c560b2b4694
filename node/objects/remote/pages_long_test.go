//go:build long

package remote_test

import (
	"strconv"
	"testing"
	"time"

	"berth/compute"
	"berth/node/objects/remote/storetest"
)

// TestPages sweeps more blobs than a page of a list has, while they move.
func TestPages(t *testing.T) {
	const blobs = 1100
	each(t, func(t *testing.T, _ storetest.Kind, server *storetest.Store) {
		now := time.Now()
		s := open(t, server.In("a/"), "mine", func() time.Time { return now })
		for i := range blobs {
			if _, err := s.Put(t.Context(), strconv.AppendInt(nil, int64(i), 10)); err != nil {
				t.Fatal(err)
			}
		}
		if all, err := s.All(t.Context()); len(all) != blobs || err != nil {
			t.Errorf("%d are listed, %v", len(all), err)
		}
		for _, want := range [][2]int{{blobs, 0}, {0, blobs}} {
			now = now.Add(2 * time.Hour)
			moved, deleted, err := s.Sweep(t.Context(), func(compute.Hash) bool { return false }, time.Hour)
			if moved != want[0] || deleted != want[1] || err != nil {
				t.Errorf("%d moved and %d deleted, want %v, %v", moved, deleted, want, err)
			}
		}
	})
}
