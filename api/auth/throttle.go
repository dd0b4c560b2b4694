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

// Throttle limits the rate of strangers' tries, one token bucket per key. All methods
// may be called at the same time.
type Throttle struct {
	limit rate.Limit
	burst int
	now   func() time.Time

	mu sync.Mutex

	byKey  map[throttleKey]*list.Element
	recent *list.List // Holds *throttled values, the newest in front.
}

// throttleKey is the SHA-256 of a key: its size does not depend on the text
// that strangers send.
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

// Logins limits the rate of sign-ins, so that neither one password is tried on many accounts
// nor many passwords on one. An account is slowed down for the network that
// tries, never locked: a lock would be a weapon against its owner.
type Logins struct {
	Accounts  *Throttle // An account, from one network.
	Everyone  *Throttle // An account, from all networks: a ceiling far above Accounts.
	Addresses *Throttle // All accounts, from one address.
}

// Allow reports whether a sign-in may be tried now and, if not, when. via names
// the node that reports the address, "" for this one.
func (l Logins) Allow(email, via string, from netip.Addr) (retryAfter time.Duration, ok bool) {
	email = strings.ToLower(strings.TrimSpace(email))
	if retryAfter, ok = l.Addresses.Allow(Customer(via, from)); !ok {
		return retryAfter, false
	}
	// A try that its network may not make counts for no other network.
	if retryAfter, ok = l.Accounts.Allow(Network(via, from) + " " + email); !ok {
		return retryAfter, false
	}
	return l.Everyone.Allow(email)
}

// Network names the network of an address as Logins distinguishes networks. via
// names the node that reports the address, "" for this one.
func Network(via string, from netip.Addr) string {
	return via + " " + network(from.Unmap().WithZone(""), networkBits)
}

// Customer names who is behind an address, as limits of strangers distinguish them: an IPv4
// address, or the network that one customer has in IPv6.
func Customer(via string, from netip.Addr) string {
	return via + " " + network(from.Unmap().WithZone(""), netip.IPv4Unspecified().BitLen())
}

// Prefix lengths of the networks that one customer has.
const (
	networkBits  = 24 // For IPv4 addresses.
	networkBits6 = 64 // For IPv6 addresses.
)

// network returns the network of an address: so many bits of an IPv4 one,
// networkBits6 of an IPv6 one.
func network(a netip.Addr, bits int) string {
	if a.Is6() {
		bits = networkBits6
	}
	prefix, err := a.Prefix(bits)
	if err != nil {
		return a.String()
	}
	return prefix.String()
}
