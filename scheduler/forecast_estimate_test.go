package scheduler_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"berth/compute"
	"berth/fsm/command"
	"berth/scheduler/forecast"
	"berth/testsize"
)

// job is one line of a trace.
type job struct {
	at       compute.Instant
	profile  string
	timeout  time.Duration
	duration time.Duration
	priority int
}

// trace returns jobs whose lengths are log-normal parts of their time limits,
// and which come faster than the cluster works from time to time.
func trace(seed uint64, jobs int, load float64) []job {
	rng := rand.New(rand.NewPCG(seed, 1))
	kinds := []struct {
		profile       string
		milli         float64
		limit         time.Duration
		median, sigma float64
		weight        int
	}{
		{"h100", 1, 40 * time.Minute, 0.20, 0.8, 4},
		{"h100.2x", 2, time.Hour, 0.35, 0.5, 2},
		{"h100.500m", 0.5, 10 * time.Minute, 0.10, 1.0, 4},
		{"h100.4x", 4, time.Hour, 0.15, 0.6, 1},
	}
	var weighted []int
	for i, k := range kinds {
		for range k.weight {
			weighted = append(weighted, i)
		}
	}
	at, out := 0.0, make([]job, jobs)
	for i := range out {
		k := kinds[weighted[rng.IntN(len(weighted))]]
		part := min(k.median*math.Exp(k.sigma*rng.NormFloat64()), 1)
		out[i] = job{
			at: compute.Instant(at * 1000), profile: k.profile, timeout: k.limit,
			duration: max(time.Duration(part*float64(k.limit)), time.Second),
		}
		if rng.IntN(10) == 0 {
			out[i].priority = 50 // Passes those that wait, which no estimate can know.
		}
		// Waves: the load swings by half around its mean, in a period of hours.
		wave := 1 + 0.5*math.Sin(at/3600)
		at += rng.ExpFloat64() * 65 / (load * wave)
	}
	return out
}

// replay gives the trace to a cluster under a virtual clock and returns the quality
// of the estimates. Each execution that waits is estimated once.
func replay(t *testing.T, jobs []job) compute.Calibration {
	t.Helper()
	eight := slices.Repeat([]string{"h100"}, 8)
	c := newCluster(t, eight, eight)
	settings := c.machine.View().Settings()
	settings.Concurrent, settings.Meter = 0, true
	c.must(command.SetSettings{Term: 1, Settings: settings})
	begin := c.now + 1000
	type end struct {
		at compute.Instant
		id compute.ExecutionID
	}
	var ends []end
	lengths := map[compute.ExecutionID]time.Duration{}
	estimated := c.now
	for len(jobs) > 0 || len(ends) > 0 {
		if len(ends) == 0 || len(jobs) > 0 && begin+jobs[0].at < ends[0].at {
			j := jobs[0]
			jobs = jobs[1:]
			c.now = max(c.now, begin+j.at)
			id := c.submit(j.profile, func(e *compute.Execution) { e.Timeout, e.Priority = j.timeout, j.priority })
			lengths[id] = j.duration
		} else {
			c.now = max(c.now, ends[0].at)
			c.finish(ends[0].id, 0)
			ends = ends[1:]
		}
		c.pack()
		for _, id := range c.placed() {
			if d, ok := lengths[id]; ok {
				delete(lengths, id)
				ends = append(ends, end{c.now.Add(d), id})
			}
		}
		slices.SortStableFunc(ends, func(a, b end) int { return cmp.Compare(a.at, b.at) })
		if c.now >= estimated.Add(time.Minute) {
			c.estimate()
			estimated = c.now
		}
	}
	return c.machine.View().Calibration()
}

// estimate records estimates for queued executions without one.
func (c *cluster) estimate() {
	c.tb.Helper()
	c.must(command.Tick{Term: 1})
	v := c.machine.View()
	if list := forecast.Unestimated(v, forecast.EstimateQueue); len(list) > 0 {
		c.must(command.RecordEstimates{Term: 1, At: v.Now(), Estimates: list})
	}
}

// TestEstimatesCoverWhatTheyPromise replays traces on a full cluster: of the
// executions that waited, nine of ten start by their p90 estimate.
func TestEstimatesCoverWhatTheyPromise(t *testing.T) {
	if testing.Short() {
		t.Skip("replays traces")
	}
	// No parameter was tuned on the seeds 2001 to 2006. All six would take minutes, so
	// these stand for them.
	loads := testsize.Pick(map[uint64]float64{2001: 0.8}, map[uint64]float64{2001: 0.8, 2006: 1.15})
	for seed, load := range loads {
		got := replay(t, trace(seed, 1500, load))
		p90 := float64(got.P90.Covered) / float64(got.P90.Total)
		p50 := float64(got.P50.Covered) / float64(got.P50.Total)
		t.Logf("seed %d, load %.2f: %d estimates, p90 covers %.1f %%, p50 %.1f %%; scales %v", seed, load,
			got.P90.Total, 100*p90, 100*p50, got.Sizes)
		if got.P90.Total < 500 || p90 < 0.85 || p90 > 0.95 {
			t.Errorf("load %.2f: p90 covers %.1f %% of %d waits, want 85 to 95 %%", load, 100*p90, got.P90.Total)
		}
		if p50 < 0.40 || p50 > 0.60 {
			t.Errorf("load %.2f: p50 covers %.1f %% of the waits, want 40 to 60 %%", load, 100*p50)
		}
	}
}
