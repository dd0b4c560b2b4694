package command

import (
	"berth/compute"
	"berth/fsm/format"
)

type (
	// CreateKey records an API key of an organization.
	CreateKey struct {
		Op    Op          `cbor:"1,keyasint"`
		Actor Actor       `cbor:"2,keyasint"`
		Key   compute.Key `cbor:"3,keyasint"`

		// MaxCredits is the ceiling of the key, which becomes its budget; 0 for none.
		MaxCredits compute.Credits `cbor:"80,keyasint,omitempty"`
	}

	// ToggleKey makes an active key inactive, or the other way round.
	ToggleKey struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Key   compute.KeyID `cbor:"3,keyasint"`
	}

	// DeleteKey removes an API key.
	DeleteKey struct {
		Op    Op            `cbor:"1,keyasint"`
		Actor Actor         `cbor:"2,keyasint"`
		Key   compute.KeyID `cbor:"3,keyasint"`
	}

	// RegenerateKey gives a key a new value; the old one is dead.
	RegenerateKey struct {
		Op     Op            `cbor:"1,keyasint"`
		Actor  Actor         `cbor:"2,keyasint"`
		Key    compute.KeyID `cbor:"3,keyasint"`
		Lookup string        `cbor:"4,keyasint"`
		Prefix string        `cbor:"5,keyasint"`
		Hash   compute.Hash  `cbor:"6,keyasint"`
	}

	// TouchKeys records when keys were last used, many at a time.
	TouchKeys struct {
		Used map[compute.KeyID]compute.Instant `cbor:"1,keyasint"`
	}
)

// keyRows returns the rows of commands about API keys.
func keyRows() []*row {
	return []*row{
		payload[CreateKey]{
			number: 11, since: format.First,
			op:   func(c CreateKey) Op { return c.Op },
			uses: func(c CreateKey) uint64 { return formatIf(c.MaxCredits != 0, format.Accounts) },
		}.row(),
		payload[ToggleKey]{
			number: 12, since: format.First, onFullDisk: true,
			op: func(c ToggleKey) Op { return c.Op },
		}.row(),
		payload[DeleteKey]{
			number: 13, since: format.First, onFullDisk: true,
			op: func(c DeleteKey) Op { return c.Op },
		}.row(),
		payload[RegenerateKey]{
			number: 14, since: format.First,
			op: func(c RegenerateKey) Op { return c.Op },
		}.row(),
		payload[TouchKeys]{
			number: 15, since: format.First,
		}.row(),
	}
}
