package objects

import (
	"context"

	"berth/compute"
	"berth/fsm"
)

// Live adds to live the blobs that the objects of a state need: chunks, manifests and
// the chunks that they list. An error means that it is not known which they are.
func (s *Store) Live(ctx context.Context, view *fsm.View, live map[compute.Hash]bool) (unread int, err error) {
	for blob, whole := range view.ObjectBlobs() {
		if live[blob] {
			continue
		}
		live[blob] = true
		if whole {
			continue
		}
		m, readErr := s.manifestOf(ctx, blob)
		if readErr != nil {
			if unread++; err == nil {
				err = readErr
			}
			continue
		}
		for _, c := range m.chunks {
			live[c.blob] = true
		}
	}
	return unread, err
}
