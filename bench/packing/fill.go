package packing

import (
	"context"
	"fmt"
	"time"

	"berth/bench/fragment"
)

// lossPct is the loss in percent of the capacity from which a policy counts as
// refusing.
const lossPct = 0.1

// checkEvery is the number of arrivals between checks for the end of ctx.
const checkEvery = 256

// A chooser is a placement policy. It has its own model of the cluster, which
// the benchmark's accounting checks.
type chooser interface {
	// place allocates a place for one pod of a shape; false if there is none.
	place(shape int) (place, bool)
	// release frees a place that place returned.
	release(shape int, at place)
}

// run is one policy on one cluster, with the accounting beside it.
type run struct {
	workload *workload
	policy   chooser
	board    *board
	now      func() time.Time
	took     []time.Duration // By decision.
	arrivals []int           // Shapes, for a fill.
}

// arrive passes one pod to the policy and records the result. An error means a
// double allocation.
func (r *run) arrive(shape int) (at place, placed bool, err error) {
	began := r.now()
	at, placed = r.policy.place(shape)
	r.took = append(r.took, r.now().Sub(began))
	if !placed {
		return at, false, nil
	}
	s := &r.workload.shapes[shape]
	if err := r.board.check(s, at); err != nil {
		return at, false, fmt.Errorf("invalid placement by the policy: %w", err)
	}
	r.board.take(s, at)
	return at, true, nil
}

// Seed is the result of a policy for the arrivals of one seed.
type Seed struct {
	Seed uint64 `json:"seed"`
	// Allocated GPUs in percent of the cluster's, after arrivals that request
	// all of them, and 130 % of them.
	Alloc100 float64 `json:"alloc_100_pct"`
	Alloc130 float64 `json:"alloc_130_pct"`
	// The percentage that had arrived when 0.1 % of the cluster's GPUs was
	// refused; nil if that never happened.
	FirstRefusal *float64 `json:"first_refusal_pct"`
	// FGD's fragment at 100 %, in percent of the cluster's GPUs.
	Frag100    float64  `json:"frag_100_pct"`
	Lost       int      `json:"pods_refused"` // Refused pods among all arrivals.
	DecisionUS Decision `json:"decision_us"`
}

// Decision is the latency of decisions, in microseconds.
type Decision struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Mean float64 `json:"mean"`
}

// fill runs the protocol of inflation for one seed.
func (r *run) fill(ctx context.Context, seed uint64, classes []fragment.Class) (Seed, error) {
	out := Seed{Seed: seed}
	capacity := float64(r.board.capacity)
	r.took = make([]time.Duration, 0, len(r.arrivals))
	var arrived, given, lost int64
	full := false
	for i, shape := range r.arrivals {
		if i%checkEvery == 0 && ctx.Err() != nil {
			return out, ctx.Err()
		}
		demand := r.workload.shapes[shape].demand()
		_, placed, err := r.arrive(shape)
		if err != nil {
			return out, fmt.Errorf("seed %d, arrival %d: %w", seed, i+1, err)
		}
		arrived += demand
		if placed {
			given += demand
		} else {
			lost += demand
			out.Lost++
		}
		if out.FirstRefusal == nil && float64(lost) >= lossPct/100*capacity {
			out.FirstRefusal = new(100 * float64(arrived) / capacity)
		}
		if !full && arrived >= r.board.capacity {
			full = true
			out.Alloc100 = 100 * float64(given) / capacity
			out.Frag100 = fragmentation(r.board, classes)
		}
	}
	out.Alloc130 = 100 * float64(given) / capacity
	out.DecisionUS = summarize(r.took)
	return out, nil
}
