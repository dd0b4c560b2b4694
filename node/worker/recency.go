package worker

import (
	"time"

	"berth/attempt"
	"berth/boottime"
)

// recency tracks whether the known attempts may be out of date, because there was
// no contact with the leader for a while.
type recency struct {
	fresh bool          // All was read again,
	seen  time.Duration // and since then there was contact up to this boottime.
}

// behind reports whether all has to be read again.
func (r *recency) behind(contact time.Duration) bool {
	if !r.fresh || contact-r.seen > attempt.NodeTTL || boottime.Now()-contact > attempt.NodeTTL {
		r.fresh = false
		return true
	}
	r.seen = contact
	return false
}

// caughtUp notes that all was read again after the last contact. Before the first
// contact no read is new enough.
func (r *recency) caughtUp(contact time.Duration) { r.fresh, r.seen = contact != 0, contact }
