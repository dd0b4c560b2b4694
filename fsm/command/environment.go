package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// CreateEnvironment makes a named environment of its organization or, without one,
	// of the cluster.
	CreateEnvironment struct {
		Op          Op                  `cbor:"1,keyasint"`
		Actor       Actor               `cbor:"2,keyasint"`
		Environment compute.Environment `cbor:"3,keyasint"`
	}

	// DeleteEnvironment removes a named environment.
	DeleteEnvironment struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Org   compute.OrgID `cbor:"3,keyasint,omitempty"`
		Name  string        `cbor:"4,keyasint"`
	}

	// ReportEnvironment records how far a node is with an environment.
	ReportEnvironment struct {
		Node        compute.NodeID            `cbor:"1,keyasint"`
		Environment compute.EnvironmentID     `cbor:"2,keyasint"`
		Status      compute.EnvironmentStatus `cbor:"3,keyasint,omitempty"`
		SizeMiB     int64                     `cbor:"4,keyasint,omitempty"`
		Error       string                    `cbor:"5,keyasint,omitempty"`
	}
)

// environmentRows returns the rows of commands about named environments.
func environmentRows() []*row {
	return []*row{
		payload[CreateEnvironment]{
			number: 61, since: format.Containers,
			op: func(c CreateEnvironment) Op { return c.Op },
		}.row(),
		payload[DeleteEnvironment]{
			number: 62, since: format.Containers, onFullDisk: true,
			op: func(c DeleteEnvironment) Op { return c.Op },
		}.row(),
		payload[ReportEnvironment]{
			number: 63, since: format.Containers,
		}.row(),
	}
}
