package packing

import (
	"container/heap"
	"context"
	"fmt"
)

// DefaultArrivals is the number of pods in a run of churn.
const DefaultArrivals = 100_000

// warmUp is the share of arrivals that is not counted. An empty cluster needs
// several mean lives until as many pods leave as arrive.
const warmUp = 0.5

// departure is the time and place of a pod's end.
type departure struct {
	at    float64
	shape int
	place place
}

// departures is a heap by time.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := (*d)[len(*d)-1]
	*d = (*d)[:len(*d)-1]
	return last
}

// churn lets pods arrive as a Poisson process and stay for exponential times.
// They would use load times the cluster's GPUs if none was refused. It returns
// the percentage of the requested GPUs that was refused. Each pod is drawn from
// the trace. The cluster is empty at first, and the first half of the arrivals
// fills it and is not counted.
func (r *run) churn(ctx context.Context, seed uint64, load float64, arrivals int) (refusedPct float64, err error) {
	random := source(seed, forChurn)
	w := r.workload
	// Lives have the mean 1, so that by Little's law rate * mean demand is the
	// demand in service.
	rate := load * float64(w.capacity) / (float64(w.demand) / float64(len(w.pods)))
	var leaving departures
	var asked, refused int64
	now := 0.0
	for i := range arrivals {
		if i%checkEvery == 0 {
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			r.took = r.took[:0]
		}
		now += random.ExpFloat64() / rate
		shape, life := w.pods[random.IntN(len(w.pods))], random.ExpFloat64()
		for len(leaving) > 0 && leaving[0].at <= now {
			gone := heap.Pop(&leaving).(departure)
			r.policy.release(gone.shape, gone.place)
			r.board.give(&w.shapes[gone.shape], gone.place)
		}
		demand := w.shapes[shape].demand()
		counted := i >= int(warmUp*float64(arrivals))
		if counted {
			asked += demand
		}
		at, placed, err := r.arrive(shape)
		if err != nil {
			return 0, fmt.Errorf("seed %d, load %g, arrival %d: %w", seed, load, i+1, err)
		}
		switch {
		case placed:
			heap.Push(&leaving, departure{at: now + life, shape: shape, place: at})
		case counted:
			refused += demand
		}
	}
	if asked == 0 {
		return 0, nil
	}
	return 100 * float64(refused) / float64(asked), nil
}
