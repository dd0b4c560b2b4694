package boottime

import (
	"time"

	"berth/fault"
)

// Reached returns the boottime from which a contact with the leader counts: when
// the call was sent, not when it was answered. The leader counts from its receipt,
// which is no earlier, and the answer may be late.
func Reached(asked, answered time.Duration) time.Duration {
	if fault.Planted(fault.ReceiptLease) {
		return answered
	}
	return asked
}

// Lease is how long work may start or go on without contact with the leader. All
// times are boottimes. The zero value never ends.
type Lease struct {
	Grace time.Duration // How long a contact lasts; 0 or less for a lease without end.

	begun bool          // A contact was recorded.
	until time.Duration // End of the lease that has begun; soon after boot it may be negative.
}

// Renew records a contact with the leader at a boottime and reports whether it
// extends the lease. Contacts may be reported late and out of order, so the end
// never moves back. A contact is never in the future. A lease that is over stays
// over: the cluster may rely on it.
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
