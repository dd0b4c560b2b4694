package fsm_test

import (
	"math"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
	"berth/fsm/command"
)

// TestPlacementIsRecorded checks that an attempt records its plan, its score
// and the second best node.
func TestPlacementIsRecorded(t *testing.T) {
	w := newWorld(t)
	id := w.submit("t4")
	a := w.assign(id, "n3")
	a.Choice = compute.Choice{Score: -5, RunnerUp: w.node("n2").ID, RunnerUpScore: 7}
	seen := w.view().Index()
	w.must(command.CommitPlan{Term: 1, ViewIndex: seen, Plan: compute.Plan{Assignments: []compute.Assignment{a}}})
	got := w.attempt(id)
	if got.PlaceIndex != w.view().Index() || got.Placement != (compute.Placement{ViewIndex: seen, Choice: a.Choice}) {
		t.Errorf("recorded is %+v at %d", got.Placement, got.PlaceIndex)
	}
}

// TestPlacementIsSmall checks that the largest record of a decision stays
// within its limit, including the index of its entry.
func TestPlacementIsSmall(t *testing.T) {
	mode, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		t.Fatal(err)
	}
	largest := compute.Placement{ViewIndex: math.MaxUint64, Choice: compute.Choice{
		Score: math.MinInt64, RunnerUp: compute.NodeID{UUID: compute.UUID{15: 1}}, RunnerUpScore: math.MaxInt64,
	}}
	data, err := mode.Marshal(largest)
	if err != nil {
		t.Fatal(err)
	}
	index, err := mode.Marshal(uint64(math.MaxUint64))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(data) + len(index); n > compute.MaxPlacement {
		t.Errorf("a placement takes %d bytes, at most %d are allowed", n, compute.MaxPlacement)
	}
	if data, err := mode.Marshal(compute.Placement{}); err != nil || len(data) != 1 {
		t.Errorf("none takes %d bytes: %x, %v", len(data), data, err)
	}
}
