package live

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Attempts are the attempts that are being prepared or supervised. Its methods are safe
// for concurrent use.
type Attempts struct {
	gauge prometheus.Gauge

	mu sync.Mutex

	attempts map[Key]*Attempt
}

// NewAttempts returns no attempts. The gauge has their number.
func NewAttempts(gauge prometheus.Gauge) *Attempts {
	return &Attempts{gauge: gauge, attempts: make(map[Key]*Attempt)}
}

// Get returns an attempt, nil if it is not live.
func (l *Attempts) Get(k Key) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[k]
}

// Add adds an attempt, and reports whether it was not there yet.
func (l *Attempts) Add(a *Attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempts[a.Key] != nil {
		return false
	}
	l.attempts[a.Key] = a
	l.gauge.Set(float64(len(l.attempts)))
	return true
}

// Remove removes an attempt that has ended.
func (l *Attempts) Remove(a *Attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.attempts, a.Key)
	l.gauge.Set(float64(len(l.attempts)))
}

// All returns the attempts, in no order.
func (l *Attempts) All() []*Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.attempts))
}

// None reports whether there are none.
func (l *Attempts) None() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.attempts) == 0
}

// Has reports whether an attempt, in the format of Key.String, is live.
func (l *Attempts) Has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.attempts {
		if k.String() == text {
			return true
		}
	}
	return false
}
