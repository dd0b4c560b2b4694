package selection

import (
	"math"
	"slices"
	"time"

	"berth/compute"
)

// When the pace of a run says enough to predict its end, and how much faster
// than that it is allowed to become.
const (
	paceLeast   = time.Second // It has executed for so long,
	paceParts   = 0.10        // has done so much of its work,
	pacePoints  = 4           // and has said so often how far it is.
	paceMargin  = 0.15        // It may go on so much faster than ever so far,
	paceNoise   = 2.0         // and by so many standard errors of its speed.
	paceGroups  = 8           // Stretches of about equal work whose speeds are compared.
	shapeMargin = 0.10        // The same, beyond what the reference shows.
)

// Progress is how far a run is: the progress that it has printed.
type Progress struct {
	Elapsed time.Duration // Since its code started.
	Points  []compute.ProgressPoint
}

// part returns how much of its work the run had done when it last said so.
func (p Progress) part() float64 {
	if len(p.Points) == 0 {
		return 0
	}
	return p.Points[len(p.Points)-1].Part
}

// clean returns the points that rise in both, as those of a sane program do.
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

// Least returns the least time that the run will take in all, as far as its
// pace tells, and false while it tells too little. What is left of the work is
// taken to go as fast as the faster of two: the run's own speed so far, or the
// later half of it, with a margin that grows with how much the speed varied;
// and the speed that a reference had there, a run of the same code that has
// ended after whole, which knows which parts of the work are quick.
func (p Progress) Least(reference Progress, whole time.Duration) (time.Duration, bool) {
	points := p.clean()
	if p.Elapsed < paceLeast || len(points) < pacePoints || points[len(points)-1].Part < paceParts {
		return 0, false
	}
	last := points[len(points)-1]
	left := p.straight(points)
	if ref := reference.clean(); len(ref) >= pacePoints && whole > 0 {
		left = min(left, shaped(last, ref, whole))
	}
	least := last.At + time.Duration(left)
	return max(least, p.Elapsed), true
}

// straight returns the nanoseconds that are left at the fastest plausible
// constant speed.
func (p Progress) straight(points []compute.ProgressPoint) float64 {
	last := points[len(points)-1]
	speed := speedOf(compute.ProgressPoint{}, last)
	for _, from := range []int{0, len(points) / 2} {
		if from < len(points)-1 {
			speed = max(speed, speedOf(points[from], last))
		}
	}
	variation, groups := variationOf(points)
	margin := paceMargin + paceNoise*variation/math.Sqrt(groups)
	return (1 - last.Part) / (speed * (1 + margin))
}

// shaped returns the nanoseconds that are left when what is left of the work
// is the same share of the time as it was for the reference.
func shaped(last compute.ProgressPoint, ref []compute.ProgressPoint, whole time.Duration) float64 {
	done := timeAt(ref, last.Part, whole)
	if done <= 0 {
		return 0
	}
	at := float64(last.At)
	return max(at/done*float64(whole)-at, 0) / (1 + shapeMargin)
}

// timeAt returns after how many nanoseconds the reference had done part of its
// work, between its points on a straight line.
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

// variationOf returns the relative standard deviation of the speed between
// stretches of the work, and of how many. The first stretch holds the start
// and does not count.
func variationOf(points []compute.ProgressPoint) (deviation, groups float64) {
	step := max((len(points)-1)/paceGroups, 1)
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
