package fsm

import (
	"fmt"
	"iter"

	"berth/compute"
	"berth/fsm/store"
)

// arrival counts one request.
type arrival struct {
	Key     string          `cbor:"1,keyasint"`
	Arrival compute.Arrival `cbor:"2,keyasint"`
}

// Mix returns the demand on the cluster, as of the current mix. A mix stays for
// a number of arrivals, so that the scheduler seldom has to recompute values.
// It is the same until its version rises.
func (v *learnedTables) Mix() *compute.Mix { return v.mix }

// learn counts an execution that will be queued.
func (s *statistics) learn(r compute.Request) {
	if s.view.meta.Learning.Learn(arrivals{s.view.arrived}, r) {
		s.remix()
	}
}

// remix derives the current mix from the counts.
func (s *statistics) remix() { s.view.mix = s.view.meta.Learning.Mix(arrivals{s.view.arrived}) }

// arrivals adapts the table of arrivals to compute.Arrivals.
type arrivals struct {
	table store.Records[string, arrival]
}

func (a arrivals) Arrival(key string) (compute.Arrival, bool) {
	row, ok := a.table.Get(key)
	if !ok {
		return compute.Arrival{}, false
	}
	return row.Arrival, true
}

func (a arrivals) PutArrival(key string, row compute.Arrival) {
	a.table.Put(&arrival{key, row})
}

func (a arrivals) DropArrival(key string) { a.table.Drop(key) }

func (a arrivals) NumArrivals() int { return a.table.Len() }

func (a arrivals) AllArrivals() iter.Seq2[string, compute.Arrival] {
	return func(yield func(string, compute.Arrival) bool) {
		for key, row := range a.table.All() {
			if !yield(key, row.Arrival) {
				return
			}
		}
	}
}

// checkMix checks that the counts of arrivals add up.
func (v checker) checkMix() error {
	sum := uint64(0)
	for key, row := range v.view.arrived.All() {
		if want := row.Arrival.Request.Key(); key != want {
			return fmt.Errorf("arrivals of %s are counted as %s", want, key)
		}
		if row.Arrival.Count == 0 && row.Arrival.Offered == 0 {
			return fmt.Errorf("arrivals of %s are counted without a count", key)
		}
		sum += row.Arrival.Count
	}
	switch {
	case sum != v.view.meta.Learning.Total:
		return fmt.Errorf("arrivals: %d counted, their total says %d", sum, v.view.meta.Learning.Total)
	case v.view.arrived.Len() > compute.MaxMixShapes:
		return fmt.Errorf("arrivals: %d different ones are counted, at most %d are",
			v.view.arrived.Len(), compute.MaxMixShapes)
	}
	return nil
}

// differMix returns an error when two mixes are not the same.
func differMix(got, want *compute.Mix) error {
	same := got.Version == want.Version && len(got.Shares) == len(want.Shares)
	for i := 0; same && i < len(got.Shares); i++ {
		a, b := &got.Shares[i], &want.Shares[i]
		same = a.Count == b.Count && a.Request.Key() == b.Request.Key()
	}
	if !same {
		return fmt.Errorf("the mix in force is version %d of %d requests, the counts say %d of %d",
			got.Version, len(got.Shares), want.Version, len(want.Shares))
	}
	return nil
}
