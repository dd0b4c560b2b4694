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
	futures      = 40      // Simulated ones; the estimates are their quantiles.
	MaxEstimated = 512     // Executions of the queue that are simulated; those behind are extrapolated.
	maxEvents    = 20_000  // Ends of attempts that one future looks at.
	maxHistory   = 4096    // Finished executions that run times are taken from.
	minSamples   = 8       // Fewer say nothing of their kind: those of more kinds are taken.
	leastWait    = 1 << 10 // Milliseconds: what a start takes when the room is free.
	mostWait     = int64(365 * 24 * time.Hour / time.Millisecond)
)

// View is what a forecast needs of the state.
type View interface {
	scheduler.View
	// Ended yields the executions that have ended, the newest end first.
	Ended() iter.Seq[*compute.Execution]
}

// EstimateQueue returns when the executions of the queue may start, in its
// order: those of which nothing can be said are left out, and those beyond
// MaxEstimated too. It simulates futures: the attempts that live end, and what
// starts takes as long, as executions of the same organization and profile
// took of their time limits. The draws are a function of the identifiers, so
// that the same view gives the same answer everywhere. What is submitted later
// is unknown to it; compute.Calibration makes up for that.
func EstimateQueue(v View) []compute.StartEstimate {
	f := newSimulation(v)
	starts := make([][]int64, len(f.queue))
	for round := range futures {
		for i, at := range f.run(uint64(round)) {
			starts[i] = append(starts[i], at)
		}
	}
	out := make([]compute.StartEstimate, 0, len(f.queue))
	for i := range f.queue {
		slices.Sort(starts[i])
		if at := starts[i][futures*9/10-1]; at != never {
			out = append(out, compute.StartEstimate{
				Execution: f.queue[i].id, Samples: f.queue[i].times.samples,
				P50: milliseconds(starts[i][futures/2-1]), P90: milliseconds(at),
			})
		}
	}
	return out
}

// Estimate returns when one execution of the queue may start, out of all, the
// estimates of its queue. One behind those that were simulated waits as much
// longer as its place is farther back. It returns nil when nothing can be said.
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

// runTimes are the lengths of finished executions as parts of their time
// limits, in 1/ratioOne, sorted. No values stand for any length.
type runTimes struct {
	ratios  []int32
	samples int
}

const ratioOne = 1 << 16

// kindOfRun is what executions have in common whose run times are alike.
type kindOfRun struct {
	org     compute.OrgID
	profile string
}

// history is the run times of what has ended.
type history struct {
	kinds map[kindOfRun]*runTimes
	orgs  map[compute.OrgID]*runTimes
	all   *runTimes
}

// readHistory reads the newest of what has ended.
func readHistory(v View) *history {
	h := &history{kinds: map[kindOfRun]*runTimes{}, orgs: map[compute.OrgID]*runTimes{}, all: &runTimes{}}
	n := 0
	for e := range v.Ended() {
		if n++; n > maxHistory {
			break
		}
		if !e.Ran || e.Timeout <= 0 || e.PlacedAt.IsZero() {
			continue
		}
		held := e.FinishedAt.Sub(e.PlacedAt)
		ratio := int32(min(max(held.Milliseconds()*ratioOne/max(e.Timeout.Milliseconds(), 1), 1), 2*ratioOne))
		kind := kindOfRun{e.Org, e.Profile}
		if h.kinds[kind] == nil {
			h.kinds[kind] = &runTimes{}
		}
		if h.orgs[e.Org] == nil {
			h.orgs[e.Org] = &runTimes{}
		}
		for _, t := range []*runTimes{h.kinds[kind], h.orgs[e.Org], h.all} {
			t.ratios = append(t.ratios, ratio)
		}
	}
	for _, t := range h.kinds {
		t.sort()
	}
	for _, t := range h.orgs {
		t.sort()
	}
	h.all.sort()
	return h
}

func (t *runTimes) sort() {
	slices.Sort(t.ratios)
	t.samples = len(t.ratios)
}

// of returns the run times that say most about e: those of its organization
// and profile, of its organization, of all, or none.
func (h *history) of(e *compute.Execution) *runTimes {
	for _, t := range []*runTimes{h.kinds[kindOfRun{e.Org, e.Profile}], h.orgs[e.Org], h.all} {
		if t != nil && t.samples >= minSamples {
			return t
		}
	}
	return &runTimes{}
}

// draw returns how many milliseconds more an execution takes that has taken so
// many, by a number that is uniform.
func (t *runTimes) draw(random uint64, limit, taken int64) int64 {
	limit = max(limit, 1)
	least, _ := slices.BinarySearch(t.ratios, int32(min(taken*ratioOne/limit, 4*ratioOne))+1)
	if left := t.ratios[least:]; len(left) > 0 {
		return max(int64(left[random%uint64(len(left))])*limit/ratioOne-taken, 1)
	}
	return max(int64(random%ratioOne)*(limit-taken)/ratioOne, 1) // Any length up to the limit.
}

// mix spreads the bits of x over a word (splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// MaxRecorded is how many estimates are recorded at once: the calibration
// needs a sample, not all.
const MaxRecorded = 64

// Unestimated returns the estimates of those in the queue that have none on
// record, at most MaxRecorded. Nothing is computed when all have one.
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
