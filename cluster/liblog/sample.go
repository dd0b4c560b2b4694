package liblog

import (
	"sync"
	"time"
)

// Limits of a Sampler.
const (
	samplePeriod = time.Minute
	samplesEach  = 5    // Records of one key in a period.
	sampleKeys   = 1000 // Keys in a period; the records of more are dropped.
)

// Sampler limits how much strangers can write to the log: a few records of each key in a
// minute. A key names a kind of event and an address. The zero value is ready.
type Sampler struct {
	mu      sync.Mutex
	began   time.Time
	seen    map[string]int
	dropped int
}

// Allow reports whether a record with key may be logged at now. Dropped is the number
// of records that were not logged in the period before, once; 0 otherwise.
func (s *Sampler) Allow(now time.Time, key string) (dropped int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil || now.Sub(s.began) >= samplePeriod || now.Before(s.began) {
		s.began, s.seen = now, make(map[string]int)
		dropped, s.dropped = s.dropped, 0
	}
	n, known := s.seen[key]
	if n >= samplesEach || !known && len(s.seen) >= sampleKeys {
		s.dropped++
		return dropped, false
	}
	s.seen[key] = n + 1
	return dropped, true
}
