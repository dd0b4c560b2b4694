package command

import (
	"berth/compute"
	"berth/fsm/format"
)

// NewReplica is one replica to create.
type NewReplica struct {
	Number int                 `cbor:"1,keyasint"` // Its slot.
	ID     compute.ExecutionID `cbor:"2,keyasint"`
}

type (
	// StartReplicas creates the next replicas of a service, in slots that need one.
	StartReplicas struct {
		Term     uint64              `cbor:"1,keyasint"`
		Service  compute.ExecutionID `cbor:"2,keyasint"`
		Replicas []NewReplica        `cbor:"3,keyasint"`
	}

	// ScaleService changes how many replicas of a service are wanted.
	ScaleService struct {
		Op       Op                  `cbor:"1,keyasint"`
		Actor    Actor               `cbor:"2,keyasint"`
		Service  compute.ExecutionID `cbor:"3,keyasint"`
		Replicas int                 `cbor:"4,keyasint"`
	}

	// SurgeService gives a service one replica more than are wanted, to take the place
	// of an outdated one once it is ready. It changes nothing if none is outdated.
	SurgeService struct {
		Term    uint64              `cbor:"1,keyasint"`
		Service compute.ExecutionID `cbor:"2,keyasint"`
	}

	// SetReady is the report of a node that a replica has become ready, or is no
	// longer.
	SetReady struct {
		Node      compute.NodeID      `cbor:"1,keyasint"`
		Execution compute.ExecutionID `cbor:"2,keyasint"`
		Epoch     uint64              `cbor:"3,keyasint"`
		Ready     bool                `cbor:"4,keyasint,omitempty"`
	}
)

// serviceRows returns the rows of commands about services.
func serviceRows() []*row {
	return []*row{
		payload[StartReplicas]{
			number: 48, since: format.Services,
			term: func(c StartReplicas) uint64 { return c.Term },
		}.row(),
		payload[ScaleService]{
			number: 49, since: format.Services,
			op: func(c ScaleService) Op { return c.Op },
		}.row(),
		payload[SetReady]{
			number: 50, since: format.Services, onFullDisk: true,
		}.row(),
		payload[SurgeService]{
			number: 104, since: format.Updates,
			term: func(c SurgeService) uint64 { return c.Term },
		}.row(),
	}
}
