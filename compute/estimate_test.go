package compute_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"berth/compute"
)

// TestCalibrationCovers checks that nine of ten estimates hold for any
// distribution of waits relative to estimates: ten times as long for one size
// class, drawn from heavy tails, or drifting by half an order of magnitude. An
// estimate is compared only at the start, which is many estimates later.
func TestCalibrationCovers(t *testing.T) {
	const promised, delay = 4000, 25
	for _, tt := range []struct {
		name string
		wait func(i, class int, rng *rand.Rand) float64 // In multiples of the estimate.
	}{
		{"as estimated", func(_, _ int, rng *rand.Rand) float64 { return rng.ExpFloat64() / 2 }},
		{"each size its own", func(_, class int, rng *rand.Rand) float64 {
			return []float64{0.2, 1, 10}[class] * math.Exp(rng.NormFloat64())
		}},
		{"heavy tails", func(_, _ int, rng *rand.Rand) float64 { return math.Pow(1-rng.Float64(), -1) / 4 }},
		{"drift", func(i, _ int, rng *rand.Rand) float64 {
			return math.Exp(0.6*math.Sin(float64(i)/300) + 0.7*rng.NormFloat64())
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(3, 1))
			var c compute.Calibration
			var open []func()
			for i := range promised {
				class := rng.IntN(compute.SizeClasses)
				e := compute.Estimated{P50: 50 * time.Second, P90: 100 * time.Second, By: c.Sizes[class].Scales()}
				wait := compute.Instant(tt.wait(i, class, rng) * 100_000)
				open = append(open, func() { c.Observe(e, class, wait) })
				if len(open) > delay {
					open[0]()
					open = open[1:]
				}
			}
			p50 := float64(c.P50.Covered) / float64(c.P50.Total)
			p90 := float64(c.P90.Covered) / float64(c.P90.Total)
			t.Logf("p50 covers %.3f, p90 %.3f", p50, p90)
			if p90 < 0.88 || p90 > 0.92 || p50 < 0.45 || p50 > 0.55 {
				t.Errorf("p50 covers %.3f of the waits and p90 %.3f, want 0.45 to 0.55 and 0.88 to 0.92", p50, p90)
			}
		})
	}
}
