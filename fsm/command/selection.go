package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// TakeSelection takes a parent's queue message, exactly once, and creates
	// one sub-execution per profile; with none the parent fails for Reason.
	TakeSelection struct {
		Term     uint64              `cbor:"1,keyasint"`
		Parent   compute.ExecutionID `cbor:"2,keyasint"`
		Children []Child             `cbor:"3,keyasint,omitempty"`
		Reason   compute.Reason      `cbor:"4,keyasint,omitempty"`
		Detail   string              `cbor:"5,keyasint,omitempty"`
	}

	// Child is one sub-execution to create.
	Child struct {
		ID      compute.ExecutionID `cbor:"1,keyasint"`
		Profile string              `cbor:"2,keyasint"`
		Repeat  int                 `cbor:"3,keyasint,omitempty"` // Which run of the profile, from 1; 0 is 1.
	}

	// StopCandidates ends runs of a GPU selection that need not go on. Those
	// that were not placed end at once, the others are stopped gracefully; one
	// that has ended or is being stopped is left alone.
	StopCandidates struct {
		Term   uint64                  `cbor:"1,keyasint"`
		Parent compute.ExecutionID     `cbor:"2,keyasint"`
		Stops  []compute.CandidateStop `cbor:"3,keyasint"`
	}
)

// selectionRows returns the rows of commands about GPU selections.
func selectionRows() []*row {
	return []*row{
		payload[TakeSelection]{
			number: 20, since: format.First,
			term: func(c TakeSelection) uint64 { return c.Term },
		}.row(),
		payload[StopCandidates]{
			number: 32, since: format.Fairness, onFullDisk: true,
			term: func(c StopCandidates) uint64 { return c.Term },
		}.row(),
	}
}
