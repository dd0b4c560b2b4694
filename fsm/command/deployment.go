package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// ChangeDeployment stops a deployment, or starts one again that was stopped, paused
	// or has failed.
	ChangeDeployment struct {
		Op         Op                  `cbor:"1,keyasint"`
		Actor      Actor               `cbor:"2,keyasint"`
		Deployment compute.ExecutionID `cbor:"3,keyasint"`
		Start      bool                `cbor:"4,keyasint,omitempty"`
	}

	// ScaleDeployment changes how many replicas an active deployment has; 0 pauses it.
	// It is the leader's, and changes nothing if the deployment has changed since.
	ScaleDeployment struct {
		Term       uint64              `cbor:"1,keyasint"`
		Deployment compute.ExecutionID `cbor:"2,keyasint"`
		Replicas   int                 `cbor:"3,keyasint,omitempty"`
		Since      compute.Instant     `cbor:"4,keyasint,omitempty"` // Its ChangedAt when that was decided.
	}

	// ResumeDeployment starts a paused deployment, for a request that waits.
	ResumeDeployment struct {
		Deployment compute.ExecutionID `cbor:"1,keyasint"`
	}

	// UpdateDeployment changes the program of a deployment, and how it scales. Nil fields keep
	// their value. Replicas are replaced one after the other, each once another one is ready.
	UpdateDeployment struct {
		Op         Op                  `cbor:"1,keyasint"`
		Actor      Actor               `cbor:"2,keyasint"`
		Deployment compute.ExecutionID `cbor:"3,keyasint"`
		Model      *compute.Inference  `cbor:"4,keyasint,omitempty"`
		Scaling    *compute.Deployment `cbor:"5,keyasint,omitempty"` // Its limits and targets.
		Key        *compute.DataKey    `cbor:"6,keyasint,omitempty"` // The organization's first data key, where it has none.
		MinVRAMMiB int64               `cbor:"7,keyasint,omitempty"` // That each GPU must have at least for Model.
	}
)

// deploymentRows returns the rows of commands about deployments of models.
func deploymentRows() []*row {
	return []*row{
		payload[ChangeDeployment]{
			number: 75, since: format.Accounts, onFullDisk: true,
			op: func(c ChangeDeployment) Op { return c.Op },
		}.row(),
		payload[ScaleDeployment]{
			number: 76, since: format.Accounts, onFullDisk: true,
			term: func(c ScaleDeployment) uint64 { return c.Term },
		}.row(),
		payload[ResumeDeployment]{
			number: 77, since: format.Accounts,
		}.row(),
		payload[UpdateDeployment]{
			number: 103, since: format.Updates,
			op: func(c UpdateDeployment) Op { return c.Op },
		}.row(),
	}
}
