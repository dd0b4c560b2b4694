package auth

import (
	"container/list"
	"crypto/sha256"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxThrottled is how many keys a Throttle remembers. The ones that were quiet
// longest are forgotten first, and start with a full bucket again.
const maxThrottled = 1 << 16

// Throttle paces what strangers may try, one token bucket per key. All methods
// may be called at the same time.
type Throttle struct {
	limit rate.Limit
	burst int
	now   func() time.Time

	mu sync.Mutex

	byKey  map[throttleKey]*list.Element
	recent *list.List // Of *throttled, the newest in front.
}

// throttleKey is the SHA-256 of a key: of one size, whatever strangers send.
type throttleKey [sha256.Size]byte

// throttled is one key's bucket.
type throttled struct {
	key    throttleKey
	bucket *rate.Limiter
}

// NewThrottle returns a Throttle that allows perMinute tries a minute for each
// key, and burst at once.
func NewThrottle(perMinute float64, burst int, now func() time.Time) *Throttle {
	return &Throttle{
		limit:  rate.Limit(perMinute / time.Minute.Seconds()),
		burst:  burst,
		now:    now,
		byKey:  map[throttleKey]*list.Element{},
		recent: list.New(),
	}
}

// Allow reports whether the key may try now and, if not, when it may.
func (t *Throttle) Allow(key string) (retryAfter time.Duration, ok bool) {
	now := t.now()
	r := t.bucket(sha256.Sum256([]byte(key))).ReserveN(now, 1)
	if !r.OK() {
		return time.Minute, false // The burst is zero: nothing is ever allowed.
	}
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now) // A refused try does not push the next one away.
		return wait, false
	}
	return 0, true
}

// bucket returns the key's bucket.
func (t *Throttle) bucket(key throttleKey) *rate.Limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e, known := t.byKey[key]; known {
		t.recent.MoveToFront(e)
		return e.Value.(*throttled).bucket
	}
	if t.recent.Len() >= maxThrottled {
		oldest := t.recent.Back()
		t.recent.Remove(oldest)
		delete(t.byKey, oldest.Value.(*throttled).key)
	}
	entry := &throttled{key: key, bucket: rate.NewLimiter(t.limit, t.burst)}
	t.byKey[key] = t.recent.PushFront(entry)
	return entry.bucket
}

// Logins paces sign-ins, by account and by address, so that neither one
// password is tried on many accounts nor many passwords on one. An account is
// slowed down, never locked: a lock would be a weapon against its owner.
type Logins struct {
	Accounts  *Throttle
	Addresses *Throttle
}

// Allow reports whether a sign-in may be tried now and, if not, when.
func (l Logins) Allow(email string, from netip.Addr) (retryAfter time.Duration, ok bool) {
	if retryAfter, ok = l.Addresses.Allow(addressKey(from)); !ok {
		return retryAfter, false
	}
	return l.Accounts.Allow(strings.ToLower(strings.TrimSpace(email)))
}

// addressKey returns the network that one customer has: an IPv4 address or an
// IPv6 /64.
func addressKey(a netip.Addr) string {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		prefix, err := a.Prefix(64)
		if err == nil {
			return prefix.String()
		}
	}
	return a.String()
}
