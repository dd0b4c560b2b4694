package command

import (
	"berth/compute"
	"berth/fsm/format"
)

// asksAny reports whether a submitted execution has fields that format.Services adds here.
func asksAny(e *compute.Execution) bool {
	p, err := compute.ParseProfile(e.Profile)
	return len(e.GPUTypes) > 0 || e.MinCapability != 0 || err == nil && p.GPUType == compute.AnyGPU
}

type (
	// Submit records an execution as queued, or the parent of a GPU selection
	// with its queue message as pending, and sets its credits aside. Request,
	// Price, Status, the indexes and instants are filled by the state.
	Submit struct {
		Op        Op                `cbor:"1,keyasint"`
		Actor     Actor             `cbor:"2,keyasint"`
		Execution compute.Execution `cbor:"3,keyasint"`

		// Key is the organization's first data key, with credentials that it seals.
		Key *compute.DataKey `cbor:"4,keyasint,omitempty"`
	}

	// StopExecution asks for the end of an execution. One that is not on a
	// node yet ends at once; a parent passes it on to its children.
	StopExecution struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
		Stop      compute.Stop        `cbor:"4,keyasint"`
	}

	// DeleteExecution removes the code and the outputs of a terminal
	// execution; its billing row stays.
	DeleteExecution struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
	}

	// RecordEstimates records when executions of the queue are expected to start.
	// Their real starts are compared with it later. An execution keeps its first estimate.
	RecordEstimates struct {
		Term      uint64                  `cbor:"1,keyasint"`
		At        compute.Instant         `cbor:"2,keyasint"` // Time of the view that they were made from.
		Estimates []compute.StartEstimate `cbor:"3,keyasint"`
	}

	// CompleteExecution records a client's first report on the end of a Compose execution,
	// and asks a live one to end. It never changes one that has ended.
	CompleteExecution struct {
		Op        Op                  `cbor:"1,keyasint"`
		Actor     Actor               `cbor:"2,keyasint"`
		Execution compute.ExecutionID `cbor:"3,keyasint"`
		Reported  compute.Reported    `cbor:"4,keyasint"`
	}
)

// executionRows returns the rows of commands about executions.
func executionRows() []*row {
	return []*row{
		payload[Submit]{
			number: 19, since: format.First,
			op: func(c Submit) Op { return c.Op },
			uses: func(c Submit) uint64 {
				e := &c.Execution
				return max(formatIf(e.MaxRetries > 0, format.Trust), formatIf(e.ImportFiles > 0, format.Imports),
					formatIf(len(e.Volumes) > 0 || e.ScratchMiB > 0 || e.ScratchMemory || e.MinVRAMMiB > 0 ||
						e.Name != "" || e.Files != nil, format.Lab),
					formatIf(e.Kind == compute.KindService || asksAny(e), format.Services),
					formatIf(e.Container != nil || c.Key != nil || e.Environment.Name != "", format.Containers),
					formatIf(e.Storage != nil || e.Deployment != nil || e.Inference != nil, format.Accounts),
					formatIf(e.OutputsPrefix != "" || e.Deployment != nil && e.Deployment.AskedVRAMMiB != 0, format.Asked))
			},
		}.row(),
		payload[StopExecution]{
			number: 25, since: format.First, onFullDisk: true,
			op: func(c StopExecution) Op { return c.Op },
		}.row(),
		payload[DeleteExecution]{
			number: 26, since: format.First, onFullDisk: true,
			op: func(c DeleteExecution) Op { return c.Op },
		}.row(),
		payload[RecordEstimates]{
			number: 31, since: format.Fairness,
			term: func(c RecordEstimates) uint64 { return c.Term },
		}.row(),
		payload[CompleteExecution]{
			number: 65, since: format.Containers, onFullDisk: true,
			op: func(c CompleteExecution) Op { return c.Op },
		}.row(),
	}
}
