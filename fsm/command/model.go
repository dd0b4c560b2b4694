package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// SetModel publishes a deployment under an id, or changes its prices or its
	// deployment.
	SetModel struct {
		Op         Op                  `cbor:"1,keyasint"`
		Actor      Actor               `cbor:"2,keyasint"`
		ID         string              `cbor:"3,keyasint"`
		Deployment compute.ExecutionID `cbor:"4,keyasint"`
		Prices     compute.TokenPrices `cbor:"5,keyasint"`
	}

	// RemoveModel withdraws a published model. Its deployment stays.
	RemoveModel struct {
		Op    Op     `cbor:"1,keyasint"`
		Actor Actor  `cbor:"2,keyasint"`
		ID    string `cbor:"3,keyasint"`
	}

	// SettleTokens records the use of models by requests through a node, and sets credits
	// aside for others. The batches of a node's session are numbered from 1, so that each
	// is counted once. A session is the Raft index at which the node began.
	SettleTokens struct {
		Node    compute.NodeID `cbor:"1,keyasint"`
		Session uint64         `cbor:"2,keyasint"`
		Number  uint64         `cbor:"3,keyasint"`
		Usage   []UsedTokens   `cbor:"4,keyasint,omitempty"`
		Holds   []WantedHold   `cbor:"5,keyasint,omitempty"`
	}

	// UsedTokens is a payer's use of a model, by the engine's own figures, at the prices
	// at which its requests were accepted.
	UsedTokens struct {
		Payer      compute.Payer       `cbor:"1,keyasint"`
		Model      string              `cbor:"2,keyasint"`
		Prices     compute.TokenPrices `cbor:"3,keyasint"`
		Prompt     int64               `cbor:"4,keyasint,omitempty"`
		Completion int64               `cbor:"5,keyasint,omitempty"`
		Requests   int64               `cbor:"6,keyasint,omitempty"`
	}

	// WantedHold is the hold that a node wants for a payer: up to Most, and nothing more
	// where not even Least is available. Any amount above Most is released.
	WantedHold struct {
		Payer compute.Payer   `cbor:"1,keyasint"`
		Least compute.Credits `cbor:"2,keyasint,omitempty"`
		Most  compute.Credits `cbor:"3,keyasint,omitempty"`
	}
)

// modelRows returns the rows of commands about published models.
func modelRows() []*row {
	return []*row{
		payload[SetModel]{
			number: 100, since: format.Serverless,
			op: func(c SetModel) Op { return c.Op },
		}.row(),
		payload[RemoveModel]{
			number: 101, since: format.Serverless, onFullDisk: true,
			op: func(c RemoveModel) Op { return c.Op },
		}.row(),
		payload[SettleTokens]{
			number: 102, since: format.Serverless, onFullDisk: true,
		}.row(),
	}
}
