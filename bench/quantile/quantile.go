// Package quantile computes the quantiles that measurements report, all by one formula.
package quantile

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"
)

// At returns the q-quantile of values, q from 0 to 1: the smallest value that at least
// that share of them does not exceed. It is 0 for none. The values need no order.
func At[T ~int64 | ~float64](values []T, q float64) T {
	if len(values) == 0 {
		return 0
	}
	sorted := make([]float64, len(values))
	for i, v := range values {
		sorted[i] = float64(v)
	}
	slices.Sort(sorted)
	return T(stat.Quantile(q, stat.Empirical, sorted, nil))
}

// Milliseconds is At for durations, in milliseconds.
func Milliseconds(values []time.Duration, q float64) float64 {
	return float64(At(values, q)) / float64(time.Millisecond)
}
