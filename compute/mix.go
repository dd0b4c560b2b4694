package compute

import (
	"iter"
	"maps"
	"slices"
)

// Limits of the record of arrivals.
const (
	// MaxMixShapes is how many different requests are counted.
	MaxMixShapes = 1024

	// MaxMixCount is the number of arrivals at which all counts are halved, so
	// that the mix follows changes in demand.
	MaxMixCount = 1 << 16

	firstMix = 16      // Arrivals before the first mix.
	mixEvery = 1 << 15 // Arrivals between two mixes, after doubling up to this number.
)

// Mix is the demand on the cluster so far: the requests and their frequencies.
// It is immutable.
type Mix struct {
	Version uint64     // Rises with each mix; 0 for the empty one.
	Shares  []MixShare // In the order of the requests' keys.
}

// MixShare is the frequency of one request.
type MixShare struct {
	Request Request
	Count   uint64
}

// Arrival counts one request for the next mix.
type Arrival struct {
	Request Request `cbor:"1,keyasint"`
	Count   uint64  `cbor:"2,keyasint,omitempty"` // How often it came; halving reduces the weight of older arrivals.
	Offered uint64  `cbor:"3,keyasint,omitempty"` // Its count in the current mix.
}

// Arrivals stores the counts by the requests' keys.
type Arrivals interface {
	Arrival(key string) (Arrival, bool)
	PutArrival(key string, a Arrival)
	DropArrival(key string)
	// AllArrivals yields all counts by key. The caller changes nothing meanwhile.
	AllArrivals() iter.Seq2[string, Arrival]
	NumArrivals() int
}

// Learning is the progress of the collection of a mix.
type Learning struct {
	Seen    uint64 `cbor:"1,keyasint,omitempty"` // Arrivals ever.
	Total   uint64 `cbor:"2,keyasint,omitempty"` // Sum of all counts.
	Version uint64 `cbor:"3,keyasint,omitempty"` // Version of the current mix.
}

// Learn counts the arrival of r in counts, and reports whether the mix has
// changed: after 16 arrivals, 32, 64 and so on up to 32,768, and then every
// 32,768. When a new request exceeds MaxMixShapes, all counts lose one instead
// and requests at zero are forgotten (Misra and Gries 1982). Frequent requests
// stay, and no count is short by more than arrivals / MaxMixShapes.
func (l *Learning) Learn(counts Arrivals, r Request) bool {
	key := r.Key()
	a, known := counts.Arrival(key)
	l.Seen++
	if !known && counts.NumArrivals() >= MaxMixShapes {
		l.rewrite(counts, func(count uint64) uint64 { return count - min(count, 1) })
		return true
	}
	a.Request = r
	a.Count++
	l.Total++
	counts.PutArrival(key, a)
	due := l.Seen >= firstMix && l.Seen&(l.Seen-1) == 0 || l.Seen%mixEvery == 0
	if !due {
		return false
	}
	if l.Total >= MaxMixCount {
		l.rewrite(counts, func(count uint64) uint64 { return count / 2 })
	} else {
		l.rewrite(counts, func(count uint64) uint64 { return count })
	}
	return true
}

// rewrite changes the count of every request and makes the counts the current
// mix. It forgets requests whose count is zero.
func (l *Learning) rewrite(counts Arrivals, count func(uint64) uint64) {
	l.Version++
	l.Total = 0
	changed := make(map[string]Arrival)
	for key, a := range counts.AllArrivals() {
		a.Count = count(a.Count)
		a.Offered = a.Count
		changed[key] = a
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		a := changed[key]
		if a.Count == 0 {
			counts.DropArrival(key)
			continue
		}
		l.Total += a.Count
		counts.PutArrival(key, a)
	}
}

// Mix returns the current mix.
func (l *Learning) Mix(counts Arrivals) *Mix {
	m := &Mix{Version: l.Version}
	for _, a := range counts.AllArrivals() {
		if a.Offered > 0 {
			m.Shares = append(m.Shares, MixShare{a.Request, a.Offered})
		}
	}
	return m
}

// Learner collects a mix in memory, as the state does in its tables. The zero
// value has seen nothing. It is not safe for concurrent use.
type Learner struct {
	learning Learning
	rows     map[string]Arrival
}

// Learn counts the arrival of r and reports whether the mix has changed.
func (l *Learner) Learn(r Request) bool {
	if l.rows == nil {
		l.rows = make(map[string]Arrival)
	}
	return l.learning.Learn(l, r)
}

// Mix returns the current mix.
func (l *Learner) Mix() *Mix { return l.learning.Mix(l) }

// Arrival returns the count of a request.
func (l *Learner) Arrival(key string) (Arrival, bool) { a, ok := l.rows[key]; return a, ok }

// PutArrival sets the count of a request.
func (l *Learner) PutArrival(key string, a Arrival) { l.rows[key] = a }

// DropArrival forgets a request.
func (l *Learner) DropArrival(key string) { delete(l.rows, key) }

// NumArrivals returns how many requests are counted.
func (l *Learner) NumArrivals() int { return len(l.rows) }

// AllArrivals yields the counts by key.
func (l *Learner) AllArrivals() iter.Seq2[string, Arrival] {
	return func(yield func(string, Arrival) bool) {
		for _, key := range slices.Sorted(maps.Keys(l.rows)) {
			if !yield(key, l.rows[key]) {
				return
			}
		}
	}
}
