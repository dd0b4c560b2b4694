package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// PutVariables stores variables of the actor, in place of those with the same
	// names. Key is the organization's first data key, where it has none.
	PutVariables struct {
		Op        Op                 `cbor:"1,keyasint"`
		Actor     Actor              `cbor:"2,keyasint"`
		Key       *compute.DataKey   `cbor:"3,keyasint,omitempty"`
		Variables []compute.Variable `cbor:"4,keyasint"`
	}

	// RemoveVariables removes a variable of the actor.
	RemoveVariables struct {
		Op    Op                 `cbor:"1,keyasint"`
		Actor Actor              `cbor:"2,keyasint"`
		ID    compute.VariableID `cbor:"3,keyasint,omitempty"` // Zero for all.
	}
)

// variableRows returns the rows of commands about variables.
func variableRows() []*row {
	return []*row{
		payload[PutVariables]{
			number: 51, since: format.Services,
			op: func(c PutVariables) Op { return c.Op },
		}.row(),
		payload[RemoveVariables]{
			number: 52, since: format.Services, onFullDisk: true,
			op: func(c RemoveVariables) Op { return c.Op },
		}.row(),
	}
}
