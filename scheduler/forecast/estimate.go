package forecast

import (
	"iter"
	"slices"
	"time"

	"berth/compute"
	"berth/scheduler"
)

// Limits of an estimate: it has a bounded cost whatever the state holds.
const (
	simulations  = 40      // Number of simulations; the estimates are their quantiles.
	MaxEstimated = 512     // Executions of the queue that are simulated; later ones are extrapolated.
	maxEvents    = 20_000  // Ends of attempts in one simulation.
	maxHistory   = 4096    // Finished executions that run times are taken from.
	minSamples   = 8       // With fewer of a kind, more kinds are taken together.
	leastWait    = 1 << 10 // Milliseconds that a start takes when the capacity is free.
	mostWait     = int64(365 * 24 * time.Hour / time.Millisecond)
)

// View has the parts of the state that a forecast reads.
type View interface {
	scheduler.View
	// Ended yields the executions that have ended, the newest end first.
	Ended() iter.Seq[*compute.Execution]
}

// EstimateQueue returns when the executions of the queue may start, in its
// order. It leaves out those without a known start and those beyond
// MaxEstimated. It simulates futures in which running attempts end, and started
// executions take as long, as finished executions of the same organization and
// profile took of their time limits. The draws are a function of the
// identifiers, so that the same view gives the same answer everywhere. Later
// submits are unknown to it; compute.Calibration corrects for them.
func EstimateQueue(v View) []compute.StartEstimate {
	f := newSimulation(v)
	starts := make([][]int64, len(f.queue))
	for round := range simulations {
		for i, at := range f.run(uint64(round)) {
			starts[i] = append(starts[i], at)
		}
	}
	out := make([]compute.StartEstimate, 0, len(f.queue))
	for i := range f.queue {
		slices.Sort(starts[i])
		if at := starts[i][simulations*9/10-1]; at != never {
			out = append(out, compute.StartEstimate{
				Execution: f.queue[i].id, Samples: f.queue[i].times.samples,
				P50: milliseconds(starts[i][simulations/2-1]), P90: milliseconds(at),
			})
		}
	}
	return out
}

// Estimate returns when one execution of the queue may start, given all, the
// estimates of its queue. An execution behind the simulated ones is
// extrapolated by its position. It returns nil when no start is known.
func Estimate(v scheduler.View, id compute.ExecutionID, all []compute.StartEstimate) *compute.StartEstimate {
	if i := slices.IndexFunc(all, func(e compute.StartEstimate) bool { return e.Execution == id }); i >= 0 {
		return &all[i]
	}
	position := 0
	for e := range scheduler.Order(v) {
		if position++; e.ID == id {
			break
		}
	}
	if position <= MaxEstimated || len(all) < MaxEstimated/2 {
		return nil
	}
	last := slices.MaxFunc(all, func(a, b compute.StartEstimate) int { return int(a.P90 - b.P90) })
	behind := func(d time.Duration) time.Duration {
		return min(d/MaxEstimated*time.Duration(position), milliseconds(mostWait))
	}
	return &compute.StartEstimate{Execution: id, P50: behind(last.P50), P90: behind(last.P90), Samples: last.Samples}
}

func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, leastWait), mostWait)) * time.Millisecond
}

// MaxRecorded is how many estimates are recorded at once: the calibration needs
// a sample, not all.
const MaxRecorded = 64

// Unestimated returns the estimates of queued executions without a recorded
// estimate, at most MaxRecorded. It computes nothing when all have one.
func Unestimated(v View, estimate func(View) []compute.StartEstimate) []compute.StartEstimate {
	missing := map[compute.ExecutionID]bool{}
	position := 0
	for e := range scheduler.Order(v) {
		if position++; position > MaxEstimated || len(missing) == MaxRecorded {
			break
		}
		if e.Estimate == nil {
			missing[e.ID] = true
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(estimate(v)), func(e compute.StartEstimate) bool {
		return !missing[e.Execution]
	})
}
