package worker

import (
	"time"

	"berth/attempt"
	"berth/boottime"
)

// recency is whether what is known of own attempts may be out of date: there
// was no contact with the leader for a while.
type recency struct {
	fresh bool          // All was read anew,
	seen  time.Duration // and since then there was contact up to this boottime.
}

// behind reports whether all has to be read anew.
func (r *recency) behind(contact time.Duration) bool {
	if !r.fresh || contact-r.seen > attempt.NodeTTL || boottime.Now()-contact > attempt.NodeTTL {
		r.fresh = false
		return true
	}
	r.seen = contact
	return false
}

// caughtUp notes that all was read anew, when contact was the last one. Before
// the first one nothing that was read is enough.
func (r *recency) caughtUp(contact time.Duration) { r.fresh, r.seen = contact != 0, contact }
