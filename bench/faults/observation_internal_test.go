package faults

import (
	"testing"

	"berth/api/wire"
	"berth/bench/faults/check"
	"berth/compute"
)

// TestObservationOf checks that moved executions are distinguished from lost
// ones.
func TestObservationOf(t *testing.T) {
	e := wire.ExecutionSummary{
		Status: compute.StatusQueued, Retries: 1, Metadata: &wire.Metadata{Attempt: 3},
	}
	attempts := []wire.Attempt{
		{Attempt: 1, Reason: new(compute.ReasonDrained.String())},
		{Attempt: 2, Reason: new(compute.ReasonNodeLost.String())},
		{Attempt: 3},
	}
	want := check.Observation{Status: compute.StatusQueued, Attempt: 3, Restarts: 2}
	if got := observationOf(&e, attempts); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
