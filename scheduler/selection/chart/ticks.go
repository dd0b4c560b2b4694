package chart

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
)

// aboutTicks is how many numbers an axis gets, about.
const aboutTicks = 6

// evenTicks puts numbers at multiples of 1, 2 or 5 times a power of ten.
type evenTicks struct{}

// Ticks returns the marks of an axis from low to high.
func (evenTicks) Ticks(low, high float64) []plot.Tick {
	step := evenStep((high - low) / aboutTicks)
	if !(step > 0) || math.IsInf(step, 0) {
		return nil
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var ticks []plot.Tick
	for i := math.Ceil(low/step - 1e-9); i*step <= high+step*1e-9; i++ {
		at := i*step + 0 // No -0.
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'f', decimals, 64)})
	}
	return ticks
}

// evenStep returns the least of 1, 2 and 5 times a power of ten that is not
// below x.
func evenStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, factor := range []float64{1, 2, 5} {
		if factor*power >= x*(1-1e-9) {
			return factor * power
		}
	}
	return 10 * power
}
