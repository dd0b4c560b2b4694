package chart

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
)

// Names cover no mark, no other name, and nothing is cut off, also where types
// are close together and at the right edge.
func TestPlace(t *testing.T) {
	area := vg.Rectangle{Max: vg.Point{X: 500, Y: 300}}
	size := vg.Point{X: 60, Y: 10}
	for name, points := range map[string][]vg.Point{
		"apart":        {{X: 100, Y: 100}, {X: 300, Y: 200}},
		"side by side": {{X: 100, Y: 100}, {X: 115, Y: 102}, {X: 130, Y: 98}},
		"stacked":      {{X: 100, Y: 100}, {X: 101, Y: 112}, {X: 99, Y: 124}},
		"at the right": {{X: 495, Y: 100}, {X: 490, Y: 112}},
		"in a corner":  {{X: 495, Y: 295}, {X: 5, Y: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			var taken []vg.Rectangle
			for _, at := range points {
				taken = append(taken, around(at, dotRadius))
			}
			for i := range points {
				box := place(size, taken[i], taken, area)
				for j, other := range taken {
					if overlap(box, other) > 0 {
						t.Errorf("name %d covers %d", i, j)
					}
				}
				if outside(box, area) > 1e-9 {
					t.Errorf("name %d is cut off: %v", i, box)
				}
				taken = append(taken, box)
			}
		})
	}
}

func TestEvenTicks(t *testing.T) {
	tests := []struct {
		low, high float64
		want      string
	}{
		{0, 800, "0 200 400 600 800"},
		{0.042, 0.088, "0.05 0.06 0.07 0.08"},
		{5.3, 6.9, "5.5 6.0 6.5"},
		{0, 1, "0.0 0.2 0.4 0.6 0.8 1.0"},
		{7, 7, ""},
		{0, math.Inf(1), ""},
	}
	for _, tt := range tests {
		var labels []string
		for _, tick := range (evenTicks{}).Ticks(tt.low, tt.high) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != tt.want {
			t.Errorf("%g to %g: %s, want %s", tt.low, tt.high, got, tt.want)
		}
	}
}
