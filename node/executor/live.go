package executor

import (
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// liveAttempts are the attempts that are being prepared or supervised. Its methods are safe
// for concurrent use.
type liveAttempts struct {
	gauge prometheus.Gauge

	mu sync.Mutex

	attempts map[key]*attempt
}

// get returns an attempt, nil if it is not live.
func (l *liveAttempts) get(k key) *attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[k]
}

// add adds an attempt, and reports whether it was not there yet.
func (l *liveAttempts) add(a *attempt) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempts[a.key] != nil {
		return false
	}
	l.attempts[a.key] = a
	l.gauge.Set(float64(len(l.attempts)))
	return true
}

// remove removes an attempt that has ended.
func (l *liveAttempts) remove(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.attempts, a.key)
	l.gauge.Set(float64(len(l.attempts)))
}

// all returns the attempts, in no order.
func (l *liveAttempts) all() []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.attempts))
}

// none reports whether there are none.
func (l *liveAttempts) none() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.attempts) == 0
}

// has reports whether an attempt, in the format of key.String, is live.
func (l *liveAttempts) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.attempts {
		if k.String() == text {
			return true
		}
	}
	return false
}
