package compute

import (
	"iter"
	"maps"
	"slices"
)

// Limits of what is remembered of arrivals.
const (
	// MaxMixShapes is how many different requests are counted.
	MaxMixShapes = 1024

	// MaxMixCount is the number of arrivals at which all counts are halved, so
	// that the mix follows the times.
	MaxMixCount = 1 << 16

	firstMix = 16      // Arrivals of which the first mix is made.
	mixEvery = 1 << 15 // Arrivals from one mix to the next, after doubling up to here.
)

// Mix is the demand that a cluster has seen: which requests come, and how
// often. It never changes.
type Mix struct {
	Version uint64     // Rises with each mix; 0 for the one in which nothing has come.
	Shares  []MixShare // In the order of the requests' keys.
}

// MixShare is how often one request came.
type MixShare struct {
	Request Request
	Count   uint64
}

// Arrival counts one request. It is what a mix is learned into.
type Arrival struct {
	Request Request `cbor:"1,keyasint"`
	Count   uint64  `cbor:"2,keyasint,omitempty"` // How often it came; older times count half.
	Offered uint64  `cbor:"3,keyasint,omitempty"` // Its count in the mix that is in force.
}

// Arrivals is where what has arrived is kept, by the requests' keys.
type Arrivals interface {
	Arrival(key string) (Arrival, bool)
	PutArrival(key string, a Arrival)
	DropArrival(key string)
	// AllArrivals yields all by key. Nothing is put or dropped meanwhile.
	AllArrivals() iter.Seq2[string, Arrival]
	NumArrivals() int
}

// Learning is how far a mix has been learned.
type Learning struct {
	Seen    uint64 `cbor:"1,keyasint,omitempty"` // Arrivals ever.
	Total   uint64 `cbor:"2,keyasint,omitempty"` // The sum of all counts.
	Version uint64 `cbor:"3,keyasint,omitempty"` // Of the mix that is in force.
}

// Learn counts the arrival of r in book, and reports whether a new mix is in
// force: after 16 arrivals, 32, 64 and so on up to 32,768, and then with every
// 32,768. When too many different requests came, all counts lose one instead
// and those at nothing are forgotten (Misra and Gries 1982): what came often
// stays, and no count is short by more than arrivals / MaxMixShapes.
func (l *Learning) Learn(book Arrivals, r Request) bool {
	key := r.Key()
	a, known := book.Arrival(key)
	l.Seen++
	if !known && book.NumArrivals() >= MaxMixShapes {
		l.rewrite(book, func(count uint64) uint64 { return count - min(count, 1) })
		return true
	}
	a.Request = r
	a.Count++
	l.Total++
	book.PutArrival(key, a)
	due := l.Seen >= firstMix && l.Seen&(l.Seen-1) == 0 || l.Seen%mixEvery == 0
	if !due {
		return false
	}
	if l.Total >= MaxMixCount {
		l.rewrite(book, func(count uint64) uint64 { return count / 2 })
	} else {
		l.rewrite(book, func(count uint64) uint64 { return count })
	}
	return true
}

// rewrite gives every request another count and offers the counts as the mix
// in force. Requests that did not come any more are forgotten.
func (l *Learning) rewrite(book Arrivals, count func(uint64) uint64) {
	l.Version++
	l.Total = 0
	changed := make(map[string]Arrival)
	for key, a := range book.AllArrivals() {
		a.Count = count(a.Count)
		a.Offered = a.Count
		changed[key] = a
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		a := changed[key]
		if a.Count == 0 {
			book.DropArrival(key)
			continue
		}
		l.Total += a.Count
		book.PutArrival(key, a)
	}
}

// Mix returns the mix in force.
func (l *Learning) Mix(book Arrivals) *Mix {
	m := &Mix{Version: l.Version}
	for _, a := range book.AllArrivals() {
		if a.Offered > 0 {
			m.Shares = append(m.Shares, MixShare{a.Request, a.Offered})
		}
	}
	return m
}

// Learner learns a mix in memory, as the state does in its tables. The zero
// value has seen nothing. It must not be used by two goroutines at once.
type Learner struct {
	learning Learning
	rows     map[string]Arrival
}

// Learn counts the arrival of r and reports whether a new mix is in force.
func (l *Learner) Learn(r Request) bool {
	if l.rows == nil {
		l.rows = make(map[string]Arrival)
	}
	return l.learning.Learn(l, r)
}

// Mix returns the mix in force.
func (l *Learner) Mix() *Mix { return l.learning.Mix(l) }

// Arrival returns the count of a request.
func (l *Learner) Arrival(key string) (Arrival, bool) { a, ok := l.rows[key]; return a, ok }

// PutArrival keeps the count of a request.
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
