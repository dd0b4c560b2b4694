package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// RecordDeliveries records the outcomes of tries to send callbacks.
	RecordDeliveries struct {
		Term       uint64             `cbor:"1,keyasint"`
		Deliveries []compute.Delivery `cbor:"2,keyasint"`
	}

	// RedeliverCallbacks has the callbacks of an ended execution sent again.
	RedeliverCallbacks struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
		Number    *int                `cbor:"4,keyasint,omitempty"` // Only this one; nil for all.
	}

	// SetCallbackSecret gives an organization a new secret that signs its callbacks. Key
	// is the organization's first data key, where it has none.
	SetCallbackSecret struct {
		Op     Op                     `cbor:"1,keyasint"`
		Actor  Actor                  `cbor:"2,keyasint"`
		Org    compute.OrgID          `cbor:"3,keyasint"`
		Key    *compute.DataKey       `cbor:"4,keyasint,omitempty"`
		Secret compute.CallbackSecret `cbor:"5,keyasint"`
	}

	// RemoveCallbackSecret ends the signing of an organization's callbacks.
	RemoveCallbackSecret struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint"`
	}
)

// callbackRows returns the rows of commands about callbacks.
func callbackRows() []*row {
	return []*row{
		payload[RecordDeliveries]{
			number: 46, since: format.Deliver, onFullDisk: true,
			term: func(c RecordDeliveries) uint64 { return c.Term },
		}.row(),
		payload[RedeliverCallbacks]{
			number: 47, since: format.Deliver,
			op: func(c RedeliverCallbacks) Op { return c.Op },
		}.row(),
		payload[SetCallbackSecret]{
			number: 73, since: format.Containers,
			op: func(c SetCallbackSecret) Op { return c.Op },
		}.row(),
		payload[RemoveCallbackSecret]{
			number: 74, since: format.Containers, onFullDisk: true,
			op: func(c RemoveCallbackSecret) Op { return c.Op },
		}.row(),
	}
}
