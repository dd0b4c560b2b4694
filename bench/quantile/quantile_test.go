package quantile_test

import (
	"testing"
	"time"

	"berth/bench/quantile"
)

func TestAt(t *testing.T) {
	ten := []float64{10, 9, 8, 7, 6, 5, 4, 3, 2, 1}
	for _, tt := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{nil, 0.5, 0},
		{[]float64{3}, 0.5, 3},
		{[]float64{3}, 1, 3},
		{[]float64{2, 1}, 0.5, 1},
		{ten, 0, 1},
		{ten, 0.5, 5},
		{ten, 0.51, 6},
		{ten, 0.9, 9},
		{ten, 0.99, 10},
		{ten, 1, 10},
	} {
		if got := quantile.At(tt.values, tt.q); got != tt.want {
			t.Errorf("the %v quantile of %v is %v, want %v", tt.q, tt.values, got, tt.want)
		}
	}
	if ten[0] != 10 {
		t.Error("the values were sorted in place")
	}
	if got := quantile.Milliseconds([]time.Duration{time.Second, 1500 * time.Microsecond}, 0.5); got != 1.5 {
		t.Errorf("got %v ms, want 1.5", got)
	}
}
