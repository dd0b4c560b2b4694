package boottime

import (
	"time"

	"berth/fault"
)

// Reached returns when the leader was reached that answered at one boottime what
// it was asked at another: when it was asked. It heard the question no sooner, and
// counts from then on; the answer may have waited for long.
func Reached(asked, answered time.Duration) time.Duration {
	if fault.Planted(fault.ReceiptLease) {
		return answered
	}
	return asked
}

// Lease is for how long something may begin or go on without contact with the
// leader. All times are boottimes. The zero value never ends.
type Lease struct {
	Grace time.Duration // How long a contact lasts; 0 or less for a lease without end.

	begun bool          // There was a contact.
	until time.Duration // Of the lease that has begun; soon after boot it may be negative.
}

// Renew says that the leader was reached at a boottime, and reports whether the
// lease ends later because of it. Words of contact may come late and out of
// order, so the end never comes nearer; contact cannot be in the future; and
// once the lease is over no word brings it back: the cluster may count on it.
func (l *Lease) Renew(at, now time.Duration) bool {
	until := min(at, now) + l.Grace
	if l.Grace <= 0 || l.Over(now) || l.begun && until <= l.until {
		return false
	}
	l.begun, l.until = true, until
	return true
}

// Over reports whether the lease has ended.
func (l *Lease) Over(now time.Duration) bool { return l.begun && l.until <= now }

// Until returns the boottime at which the lease ends, 0 while there was no
// contact.
func (l *Lease) Until() time.Duration { return l.until }
