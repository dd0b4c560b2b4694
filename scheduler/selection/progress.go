package selection

import (
	"math"
	"slices"
	"time"

	"berth/compute"
)

// When the progress of a sub-execution suffices to predict its end, and how
// much faster it may become.
const (
	rateLeast       = time.Second // Least time that it has executed.
	rateParts       = 0.10        // Least part of its work that is done.
	ratePoints      = 4           // Least number of reports.
	rateMargin      = 0.15        // It may become so much faster than so far,
	rateNoise       = 2.0         // and by so many standard errors of its rate.
	rateGroups      = 8           // Stretches of about equal work whose speeds are compared.
	referenceMargin = 0.10        // Margin beyond the reference.
)

// Progress is how far a sub-execution is: the progress that its code has
// printed.
type Progress struct {
	Elapsed time.Duration // Since its code started.
	Points  []compute.ProgressPoint
}

// part returns the part of its work that the sub-execution last reported as
// done.
func (p Progress) part() float64 {
	if len(p.Points) == 0 {
		return 0
	}
	return p.Points[len(p.Points)-1].Part
}

// clean returns the points that rise in both values, as those of a sane program
// do.
func (p Progress) clean() []compute.ProgressPoint {
	var out []compute.ProgressPoint
	for _, q := range p.Points {
		if math.IsNaN(q.Part) || q.Part <= 0 || q.Part > 1 || q.At <= 0 {
			continue
		}
		if n := len(out); n > 0 && (q.Part <= out[n-1].Part || q.At <= out[n-1].At) {
			continue
		}
		out = append(out, q)
	}
	return out
}

// Least returns the least total time of the sub-execution that its progress
// allows, and false if the progress shows too little. The rest of the work is
// assumed to go as fast as the faster of two rates. One is its own rate so far,
// or of the later half, plus a margin that grows with the variation. The other
// is the rate of a reference there: a sub-execution of the same code that has
// ended after whole, and shows which parts of the work are quick.
func (p Progress) Least(reference Progress, whole time.Duration) (time.Duration, bool) {
	points := p.clean()
	if p.Elapsed < rateLeast || len(points) < ratePoints || points[len(points)-1].Part < rateParts {
		return 0, false
	}
	last := points[len(points)-1]
	left := p.straight(points)
	if ref := reference.clean(); len(ref) >= ratePoints && whole > 0 {
		left = min(left, shaped(last, ref, whole))
	}
	least := last.At + time.Duration(left)
	return max(least, p.Elapsed), true
}

// straight returns the nanoseconds left at the fastest plausible constant rate.
func (p Progress) straight(points []compute.ProgressPoint) float64 {
	last := points[len(points)-1]
	speed := speedOf(compute.ProgressPoint{}, last)
	for _, from := range []int{0, len(points) / 2} {
		if from < len(points)-1 {
			speed = max(speed, speedOf(points[from], last))
		}
	}
	variation, groups := variationOf(points)
	margin := rateMargin + rateNoise*variation/math.Sqrt(groups)
	return (1 - last.Part) / (speed * (1 + margin))
}

// shaped returns the nanoseconds left when the rest of the work takes the same
// share of the time as it did for the reference.
func shaped(last compute.ProgressPoint, ref []compute.ProgressPoint, whole time.Duration) float64 {
	done := timeAt(ref, last.Part, whole)
	if done <= 0 {
		return 0
	}
	at := float64(last.At)
	return max(at/done*float64(whole)-at, 0) / (1 + referenceMargin)
}

// timeAt returns after how many nanoseconds the reference had done part of its
// work, by linear interpolation.
func timeAt(ref []compute.ProgressPoint, part float64, whole time.Duration) float64 {
	before := compute.ProgressPoint{}
	for _, q := range append(slices.Clone(ref), compute.ProgressPoint{Part: 1, At: whole}) {
		if q.Part >= part && q.Part > before.Part {
			share := (part - before.Part) / (q.Part - before.Part)
			return float64(before.At) + share*float64(q.At-before.At)
		}
		before = q
	}
	return float64(whole)
}

// speedOf returns the work per nanosecond between two points.
func speedOf(a, b compute.ProgressPoint) float64 {
	return (b.Part - a.Part) / float64(b.At-a.At)
}

// variationOf returns the relative standard deviation of the rate between
// stretches of the work, and their number. The first stretch includes the
// start-up and does not count.
func variationOf(points []compute.ProgressPoint) (deviation, groups float64) {
	step := max((len(points)-1)/rateGroups, 1)
	var speeds []float64
	for i := step; i < len(points); i += step {
		speeds = append(speeds, speedOf(points[i-step], points[i]))
	}
	mean := 0.0
	for _, s := range speeds {
		mean += s / float64(len(speeds))
	}
	sum := 0.0
	for _, s := range speeds {
		sum += (s - mean) * (s - mean)
	}
	return math.Sqrt(sum/float64(max(len(speeds)-1, 1))) / mean, float64(len(speeds))
}
