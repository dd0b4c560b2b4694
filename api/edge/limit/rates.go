package limit

import (
	"sync"
	"time"

	"berth/compute"
)

// Rates counts requests to models by key or user, in buckets that fill evenly.
type Rates struct {
	mu sync.Mutex

	buckets map[compute.UUID]bucket
}

// NewRates returns Rates that have counted nothing.
func NewRates() *Rates { return &Rates{buckets: make(map[compute.UUID]bucket)} }

type bucket struct {
	left float64
	at   time.Time
}

// maxBuckets bounds the keys that are counted: full buckets are forgotten beyond it.
const maxBuckets = 10_000

// Take takes one request of an owner, and returns how many are left and when the
// bucket is full again; less than none, and when there is one again.
func (m *Rates) Take(owner compute.UUID, perMinute int, now time.Time) (left int, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	rate, full := float64(perMinute)/time.Minute.Seconds(), float64(perMinute)
	b, ok := m.buckets[owner]
	if !ok {
		b = bucket{full, now}
	}
	b.left = min(full, b.left+rate*max(now.Sub(b.at).Seconds(), 0))
	b.at = now
	if b.left < 1 {
		m.buckets[owner] = b
		return -1, time.Duration((1 - b.left) / rate * float64(time.Second))
	}
	b.left--
	if len(m.buckets) >= maxBuckets {
		for id, other := range m.buckets {
			if other.left+rate*now.Sub(other.at).Seconds() >= full {
				delete(m.buckets, id)
			}
		}
	}
	m.buckets[owner] = b
	return int(b.left), time.Duration((full - b.left) / rate * float64(time.Second))
}
