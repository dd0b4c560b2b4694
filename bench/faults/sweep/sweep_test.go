package sweep_test

import (
	"testing"

	"berth/bench/faults/sweep"
	"berth/fault"
)

// TestEveryPointIsTried checks that no point is left out.
func TestEveryPointIsTried(t *testing.T) {
	exits, errors := map[string]bool{}, map[string]bool{}
	for _, trial := range sweep.Trials() {
		if trial.Action == "exit@1" {
			exits[trial.Point] = true
		} else {
			errors[trial.Point] = true
		}
	}
	for _, p := range fault.Points() {
		if !exits[p.Name] || errors[p.Name] != p.Fails {
			t.Errorf("%s: ended %v, failed %v", p.Name, exits[p.Name], errors[p.Name])
		}
	}
	a, b := sweep.Sample(1, 10), sweep.Sample(1, 10)
	if len(a) != 10 || a[0] != b[0] || a[9] != b[9] {
		t.Errorf("one seed gave %v and %v", a, b)
	}
	if _, err := sweep.Run(t.Context(), sweep.Config{Points: []string{"no.such.point"}}); err == nil {
		t.Error("a point that does not exist is tried")
	}
}
