package selection

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"berth/compute"
)

// The assumed differences between sub-executions of the same code on one GPU
// type, before any are measured: their relative standard deviation, and the
// degrees of freedom of the assumption beside measurements. Five percent is the
// effect of neighbours, clocks and caches of a shared machine on a steady
// program.
const (
	priorNoise   = 0.05
	priorFreedom = 4
)

// resultOf returns the result of a candidate. Its time and its credits are the
// medians of the completed sub-executions, so that one slow sub-execution does
// not move them.
func resultOf(c *compute.Candidate) compute.CandidateResult {
	var times []time.Duration
	var credits []compute.Credits
	s := compute.CandidateResult{Status: compute.StatusPending}
	live := false
	for i := range c.Runs {
		r := &c.Runs[i]
		if r.Status == compute.StatusCompleted {
			times, credits = append(times, r.Duration), append(credits, r.Credits)
		}
		// At most one unfinished sub-execution is not pending.
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

// measured is the scores of a candidate as logarithms. Differences of
// logarithms are ratios, so the noise is relative.
type measured struct {
	logs []float64
	mean float64
}

// measure returns the scores of a candidate by the objective. A sub-execution
// that was stopped early counts with its predicted least time. The result is
// empty when there is nothing to compare.
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

// noise returns the relative standard deviation between sub-executions, pooled
// over the candidates, and its degrees of freedom. It combines the assumption
// and the measurements by their weights (the scaled inverse chi-squared prior
// of a variance).
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
// noise (Welch's test with one variance). The product treats the comparisons as
// independent.
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
