package fragment_test

import (
	"math"
	"testing"

	"berth/bench/fragment"
)

// TestExpected checks the lost part of a node's free GPUs against values computed by
// hand.
func TestExpected(t *testing.T) {
	classes := []fragment.Class{
		{CPU: 4000, GPUs: 1, Milli: 500, Models: ^uint64(0), Share: 0.5},
		{CPU: 1000, GPUs: 2, Milli: 1000, Models: 1, Share: 0.3},
		{CPU: 1000, Share: 0.2}, // Requests no GPU, so all is lost.
	}
	tests := []struct {
		name    string
		cpu     int64
		model   int
		devices []int
		want    float64
	}{
		{"full", 8000, 0, []int{0, 0}, 0},
		{"idle", 8000, 0, []int{1000, 1000}, 0.2 * 2000},
		{"one cut", 8000, 0, []int{1000, 400}, 0.5*400 + 0.3*1400 + 0.2*1400},
		{"no vCPU for the first", 3999, 0, []int{1000, 1000}, 0.5*2000 + 0.2*2000},
		{"cut beside two idle", 8000, 0, []int{1000, 300, 1000}, 0.5*300 + 0.3*300 + 0.2*2300},
		{"another model", 8000, 1, []int{1000, 1000}, 0.3*2000 + 0.2*2000},
		{"no model", 8000, fragment.NoModel, []int{1000}, 1000},
	}
	for _, tt := range tests {
		if got := fragment.Expected(tt.cpu, tt.model, tt.devices, classes); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: fragment %v, want %v", tt.name, got, tt.want)
		}
	}
}
