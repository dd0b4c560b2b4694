package selection

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"berth/compute"
)

// finished is one candidate that can be compared. Neither number is zero, so
// that ratios exist.
type finished struct {
	index   int
	name    string // The profile without "gpu.".
	runs    int    // Number of completed sub-executions.
	time    uint64 // Nanoseconds.
	credits uint64 // Micro-credits.
}

// Judge compares the candidates of a GPU selection. It returns which are on the
// Pareto front of time and credits, which is best for the objective and why,
// and how certain that is once all have ended. It compares only candidates that
// completed, by the medians of their sub-executions. Integers decide. Ties go to
// the cheaper candidate, then the faster, then the first by name.
func Judge(objective compute.Objective, candidates []compute.Candidate) compute.Verdict {
	v := compute.Verdict{Best: -1, Rows: make([]compute.CandidateResult, len(candidates))}
	live := false
	for i := range candidates {
		v.Rows[i] = resultOf(&candidates[i])
		live = live || !v.Rows[i].Status.Terminal()
	}
	runs := completed(candidates, v.Rows)
	if len(runs) == 0 {
		v.Reason = "Nothing to recommend: no GPU type has completed" + others(candidates, v.Rows, "; ") + "."
		return v
	}
	ranks := ranking{
		fastest:  slices.MinFunc(runs, compareBy(compute.ObjectiveFastest)),
		cheapest: slices.MinFunc(runs, compareBy(compute.ObjectiveCheapest)),
		best:     slices.MinFunc(runs, compareBy(objective)),
	}
	for _, r := range runs {
		v.Rows[r.index].Score = ranks.score(objective, r)
		v.Rows[r.index].Pareto = !slices.ContainsFunc(runs, r.dominatedBy)
	}
	v.Best = ranks.best.index
	v.Reason = ranks.reason(v.Rows, runs) + others(candidates, v.Rows, "; not compared: ") + "."
	if !live {
		v.Confidence = confidence(objective, candidates, v.Best)
	}
	return v
}

// completed returns the candidates that can be compared.
func completed(candidates []compute.Candidate, results []compute.CandidateResult) []finished {
	var out []finished
	for i, s := range results {
		if s.Completed > 0 {
			out = append(out, finished{
				index: i, name: shortName(candidates[i].Profile), runs: s.Completed,
				time: uint64(max(s.Duration, 1)), credits: uint64(max(s.Credits, 1)),
			})
		}
	}
	return out
}

// dominatedBy reports whether b is as good as a in both values and better in
// one.
func (a finished) dominatedBy(b finished) bool {
	return b.time <= a.time && b.credits <= a.credits && (b.time < a.time || b.credits < a.credits)
}

// compareBy returns the order in which the better candidate for the objective
// comes first. No two candidates are equal in it unless their names are.
func compareBy(objective compute.Objective) func(a, b finished) int {
	return func(a, b finished) int {
		byTime, byCredits := cmp.Compare(a.time, b.time), cmp.Compare(a.credits, b.credits)
		first := byCredits
		switch objective {
		case compute.ObjectiveFastest:
			first = byTime
		case compute.ObjectiveCheapest:
		case compute.ObjectiveBalanced:
			first = compareProducts(a, b)
		}
		return cmp.Or(first, byCredits, byTime, strings.Compare(a.name, b.name))
	}
}

// compareProducts compares time × credits, which gives the same order as the
// balanced score: the best time, the best price and the root are the same for
// all.
func compareProducts(a, b finished) int {
	aHigh, aLow := bits.Mul64(a.time, a.credits)
	bHigh, bLow := bits.Mul64(b.time, b.credits)
	return cmp.Or(cmp.Compare(aHigh, bHigh), cmp.Compare(aLow, bLow))
}

// ranking holds the best candidates by each measure.
type ranking struct {
	fastest, cheapest, best finished
}

// score returns the value that the objective minimizes.
func (k *ranking) score(objective compute.Objective, r finished) float64 {
	switch objective {
	case compute.ObjectiveFastest:
		return time.Duration(r.time).Seconds()
	case compute.ObjectiveCheapest:
		return ratio(r.credits, uint64(compute.Credit))
	case compute.ObjectiveBalanced:
	}
	return math.Sqrt(ratio(r.time, k.fastest.time) * ratio(r.credits, k.cheapest.credits))
}

// reason returns the sentence for the best candidate, without its full stop.
func (k *ranking) reason(results []compute.CandidateResult, runs []finished) string {
	b := k.best
	said := fmt.Sprintf("%s finished in %s s for %s credits", b.name,
		seconds(results[b.index].Duration), results[b.index].Credits)
	if b.runs > 1 {
		said += fmt.Sprintf(" (medians of %d runs)", b.runs)
	}
	if len(runs) == 1 {
		return said + ", the only GPU type that completed"
	}
	rest := slices.DeleteFunc(slices.Clone(runs), func(r finished) bool { return r.index == b.index })
	return said + ": " + k.speed(rest) + ", " + k.price(rest)
}

// speed compares the time of the best candidate with the rest.
func (k *ranking) speed(rest []finished) string {
	next := slices.MinFunc(rest, compareBy(compute.ObjectiveFastest))
	switch b := k.best; {
	case b.time < next.time:
		return fmt.Sprintf("%.1f × faster than the next (%s)", ratio(next.time, b.time), next.name)
	case b.time == next.time:
		return "as fast as " + next.name
	default:
		return fmt.Sprintf("%.1f × the time of the fastest (%s)", ratio(b.time, next.time), next.name)
	}
}

// price compares the credits of the best candidate with the rest.
func (k *ranking) price(rest []finished) string {
	next := slices.MinFunc(rest, compareBy(compute.ObjectiveCheapest))
	switch b := k.best; {
	case b.credits < next.credits:
		return fmt.Sprintf("the cheapest (%s costs %.1f × as much)", next.name, ratio(next.credits, b.credits))
	case b.credits == next.credits:
		return "as cheap as " + next.name
	default:
		return fmt.Sprintf("%.1f × the price of the cheapest (%s)", ratio(b.credits, next.credits), next.name)
	}
}

// others names the candidates that did not complete and their status, after
// lead. It returns an empty string when all completed.
func others(candidates []compute.Candidate, results []compute.CandidateResult, lead string) string {
	var parts []string
	for i, s := range results {
		name := shortName(candidates[i].Profile)
		switch {
		case s.Completed > 0:
		case s.Status == compute.StatusCancelled && s.Reason == compute.ReasonStoppedEarly:
			parts = append(parts, name+" was stopped early")
		case s.Status == compute.StatusCancelled && s.Reason == compute.ReasonNoCapacity:
			parts = append(parts, name+" had no capacity")
		case s.Reason == compute.ReasonNone:
			parts = append(parts, fmt.Sprintf("%s is %s", name, s.Status))
		default:
			parts = append(parts, fmt.Sprintf("%s is %s (%s)", name, s.Status, s.Reason))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return lead + strings.Join(parts, ", ")
}

// seconds formats d with a useful number of decimals.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.3f", d.Seconds())
	}
	return fmt.Sprintf("%.1f", d.Seconds())
}

// ratio returns a/b.
func ratio(a, b uint64) float64 { return float64(a) / float64(b) }

// shortName returns a profile without its prefix "gpu.".
func shortName(profile string) string { return strings.TrimPrefix(profile, "gpu.") }
