package selection

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"berth/compute"
)

// What is assumed of the differences between runs of the same code on GPUs of
// one type before any were measured: their relative standard deviation, and
// how many degrees of freedom the assumption counts for beside measurements.
// Five percent is what neighbours, clocks and caches of a shared machine make
// of a steady program.
const (
	priorNoise   = 0.05
	priorFreedom = 4
)

// standingOf returns how a candidate stands by its runs. Its time and its
// credits are the medians of those that completed: one run that was held up
// does not move them.
func standingOf(c *compute.Candidate) compute.Standing {
	var times []time.Duration
	var credits []compute.Credits
	s := compute.Standing{Status: compute.StatusPending}
	live := false
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Status == compute.StatusCompleted {
			times, credits = append(times, r.Duration), append(credits, r.Credits)
		}
		// Of the runs that have not ended, only one is not pending.
		if !r.Status.Terminal() && (!live || r.Status > s.Status) || i == 0 {
			s.Status, s.Reason = r.Status, r.Reason
		}
		live = live || !r.Status.Terminal()
	}
	if s.Completed = len(times); s.Completed == 0 {
		return s
	}
	if !live {
		s.Status, s.Reason = compute.StatusCompleted, compute.ReasonNone
	}
	s.Duration, s.Credits = median(times), median(credits)
	return s
}

// median returns the middle value, the mean of the two middle ones of an even
// number, rounded down. It sorts its argument.
func median[T ~int64](values []T) T {
	slices.Sort(values)
	n := len(values)
	if n%2 == 1 {
		return values[n/2]
	}
	low, high := values[n/2-1], values[n/2]
	return low + (high-low)/2
}

// measured is a candidate as it is compared: the logarithms of what its runs
// scored. Differences of logarithms are ratios, so that noise is relative.
type measured struct {
	logs []float64
	mean float64
}

// measure returns what the runs of a candidate scored by the objective. One
// that was stopped early counts with the least that it would have taken. It
// is empty when there is nothing to compare.
func measure(objective compute.Objective, c *compute.Candidate) measured {
	var m measured
	for i := range c.Runs {
		r := &c.Runs[i]
		switch {
		case r.Status == compute.StatusCompleted:
			m.add(objective, r.Duration, r.Credits)
		case r.Status == compute.StatusCancelled && r.Reason == compute.ReasonStoppedEarly && r.Predicted > 0:
			m.add(objective, r.Predicted, r.Price.Charge(r.Predicted))
		}
	}
	return m
}

func (m *measured) add(objective compute.Objective, d time.Duration, c compute.Credits) {
	t, p := math.Log(float64(max(d, 1))), math.Log(float64(max(c, 1)))
	value := (t + p) / 2
	switch objective {
	case compute.ObjectiveFastest:
		value = t
	case compute.ObjectiveCheapest:
		value = p
	case compute.ObjectiveBalanced:
	}
	m.logs = append(m.logs, value)
	m.mean += (value - m.mean) / float64(len(m.logs))
}

// noise returns the relative standard deviation between runs, pooled over the
// candidates, and its degrees of freedom: the assumption and what was measured,
// each by its weight (the scaled inverse chi-squared prior of a variance).
func noise(all []measured) (deviation, freedom float64) {
	sum, freedom := priorFreedom*priorNoise*priorNoise, float64(priorFreedom)
	for _, m := range all {
		for _, v := range m.logs {
			sum += (v - m.mean) * (v - m.mean)
		}
		freedom += float64(max(len(m.logs)-1, 0))
	}
	return math.Sqrt(sum / freedom), freedom
}

// confidence returns the probability that the candidate at best is better than
// all others, nil when there is no other to compare. For each other one it is
// Student's t distribution of the difference between the means with the pooled
// noise (Welch's test with one variance); their product takes the comparisons
// for independent.
func confidence(objective compute.Objective, candidates []compute.Candidate, best int) *float64 {
	all := make([]measured, len(candidates))
	for i := range candidates {
		all[i] = measure(objective, &candidates[i])
	}
	deviation, freedom := noise(all)
	student := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}
	p, compared := 1.0, false
	for i, m := range all {
		if i == best || len(m.logs) == 0 {
			continue
		}
		compared = true
		spread := deviation * math.Sqrt(1/float64(len(m.logs))+1/float64(len(all[best].logs)))
		p *= student.CDF((m.mean - all[best].mean) / spread)
	}
	if !compared {
		return nil
	}
	return &p
}
