package command

import (
	"bytes"
	"crypto/sha256"

	"berth/compute"
	"berth/fsm/format"
)

// SealedKind is a kind of key that the master key seals.
type SealedKind uint8

// Kinds of keys that the master key seals.
const (
	SealedData    SealedKind = iota // The data key of an organization.
	SealedBucket                    // The key of a bucket.
	SealedSigning                   // The private half of a signing key.
)

// SealedKey is a key that the master key has sealed.
type SealedKey struct {
	Kind   SealedKind    `cbor:"1,keyasint"`
	Org    compute.OrgID `cbor:"2,keyasint,omitempty"`
	ID     string        `cbor:"3,keyasint,omitempty"` // Identifier of a signing key.
	Sealed []byte        `cbor:"4,keyasint"`
	Before compute.Hash  `cbor:"5,keyasint,omitzero"` // SHA-256 of the sealed key that Sealed replaces.
}

// Context returns the context that the key is sealed for.
func (k *SealedKey) Context() []byte {
	switch k.Kind {
	case SealedBucket:
		return (&compute.Bucket{Org: k.Org}).Context()
	case SealedSigning:
		return (&compute.SigningKey{ID: k.ID}).Context()
	case SealedData:
	}
	return (&compute.DataKey{Org: k.Org}).Context()
}

// SealingHash returns the hash of how sealed keys begin.
func SealingHash(sealing [][]byte) compute.Hash { return sha256.Sum256(bytes.Join(sealing, nil)) }

// ResealedText replaces a sealed text by the same one, sealed with another data key.
type ResealedText struct {
	Before []byte `cbor:"1,keyasint"`
	Sealed []byte `cbor:"2,keyasint"`
	Key    uint64 `cbor:"3,keyasint"`
}

type (
	// SealWith names the keys of the master key with which values may be sealed from then
	// on, by how their ciphertexts begin. Values that arrive sealed otherwise are refused.
	SealWith struct {
		Op       Op       `cbor:"1,keyasint"`
		Actor    Actor    `cbor:"2,keyasint"` // Root or an operator.
		Prefixes [][]byte `cbor:"3,keyasint"`

		// Before is SealingHash of the keys that these replace. If it is others that seal,
		// another rotation has begun, and the command is refused. Zero replaces any.
		Before compute.Hash `cbor:"4,keyasint,omitzero"`
	}

	// Reseal replaces keys that an earlier key of the master key has sealed by the same
	// ones that another has.
	Reseal struct {
		Op    Op          `cbor:"1,keyasint"`
		Actor Actor       `cbor:"2,keyasint"` // Root or an operator.
		Keys  []SealedKey `cbor:"3,keyasint"`
	}

	// RotateKey changes the data key of an organization. It adds a key, which seals from
	// then on, or replaces values by the same ones that it sealed. With Retire it drops
	// the earlier keys, which must no longer seal anything.
	RotateKey struct {
		Op        Op                       `cbor:"1,keyasint"`
		Actor     Actor                    `cbor:"2,keyasint"` // Root or an operator.
		Org       compute.OrgID            `cbor:"3,keyasint"`
		Key       *compute.DataKey         `cbor:"4,keyasint,omitempty"`
		Retire    bool                     `cbor:"5,keyasint,omitempty"`
		Variables []compute.Variable       `cbor:"6,keyasint,omitempty"`
		Signing   []compute.CallbackSecret `cbor:"7,keyasint,omitempty"`
		Texts     []ResealedText           `cbor:"8,keyasint,omitempty"`
	}
)

// sealingRows returns the rows of commands about keys and what they seal.
func sealingRows() []*row {
	return []*row{
		payload[RotateKey]{
			number: 96, since: format.Accounts,
			op:   func(c RotateKey) Op { return c.Op },
			uses: func(c RotateKey) uint64 { return formatIf(len(c.Texts) > 0, format.Rotation) },
		}.row(),
		payload[SealWith]{
			number: 97, since: format.Accounts,
			op:   func(c SealWith) Op { return c.Op },
			uses: func(c SealWith) uint64 { return formatIf(c.Before != (compute.Hash{}), format.Rotation) },
		}.row(),
		payload[Reseal]{
			number: 98, since: format.Accounts,
			op: func(c Reseal) Op { return c.Op },
		}.row(),
	}
}
