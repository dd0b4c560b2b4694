package fsm

import "berth/compute"

// Rows of the batches of tokens.
type (
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

// modelRows returns the commands of published models.
func modelRows() []*row {
	return []*row{
		command[SetModel]{
			number: 100, since: formatServerless, apply: (*state).setModel,
			op: func(c SetModel) Op { return c.Op },
		}.row(),
		command[RemoveModel]{
			number: 101, since: formatServerless, onFullDisk: true, apply: (*state).removeModel,
			op: func(c RemoveModel) Op { return c.Op },
		}.row(),
		command[SettleTokens]{
			number: 102, since: formatServerless, onFullDisk: true, apply: (*state).settleTokens,
		}.row(),
	}
}
