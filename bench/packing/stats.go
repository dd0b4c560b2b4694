package packing

import (
	"math"
	"time"

	"berth/bench/quantile"
)

// summarize returns the quantiles and the mean of durations.
func summarize(took []time.Duration) Decision {
	if len(took) == 0 {
		return Decision{}
	}
	var sum time.Duration
	for _, t := range took {
		sum += t
	}
	micro := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return Decision{
		P50:  micro(quantile.At(took, 0.5)),
		P99:  micro(quantile.At(took, 0.99)),
		Mean: micro(sum) / float64(len(took)),
	}
}

// mean returns the mean of value over the elements.
func mean[T any](of []T, value func(*T) float64) float64 {
	sum := 0.0
	for i := range of {
		sum += value(&of[i])
	}
	return sum / float64(len(of))
}

// deviation returns the standard deviation of a sample, 0 for fewer than two
// values.
func deviation[T any](of []T, value func(*T) float64) float64 {
	if len(of) < 2 {
		return 0
	}
	m, sum := mean(of, value), 0.0
	for i := range of {
		d := value(&of[i]) - m
		sum += d * d
	}
	return math.Sqrt(sum / float64(len(of)-1))
}
