package handler

import (
	"context"

	"berth/compute"
)

// Vault seals the secrets of users. It never opens them for the API.
type Vault interface {
	// NewKey returns the first data key of an organization.
	NewKey(org compute.OrgID) (*compute.DataKey, error)
	// Seal puts the value of a secret into its record, sealed by the key.
	Seal(key *compute.DataKey, v *compute.Variable, value string) error
	// SealText returns a text sealed for a context.
	SealText(key *compute.DataKey, text, context string) ([]byte, error)
	// SealCallback puts the value of a callback secret into its record, sealed by the key.
	SealCallback(key *compute.DataKey, org compute.OrgID, s *compute.CallbackSecret, value string) error

	// RotateKey returns the key with another one that seals from then on, and RetireKeys
	// one without those before it.
	RotateKey(key *compute.DataKey) (*compute.DataKey, error)
	RetireKeys(key *compute.DataKey) (*compute.DataKey, error)
	// Reseal, ResealText and ResealCallback seal what earlier keys have sealed.
	Reseal(key *compute.DataKey, v *compute.Variable) error
	ResealText(key *compute.DataKey, sealed []byte, context string) ([]byte, error)
	ResealCallback(key *compute.DataKey, org compute.OrgID, s *compute.CallbackSecret) error
}

// MasterKey rotates the master key on all servers. Each method fails if one of them does
// not answer, and may be repeated.
type MasterKey interface {
	// Add gives all servers a further key. It returns how ciphertexts of the key that
	// seals and of the further one begin.
	Add(ctx context.Context) (now, next []byte, err error)
	// Use has a key seal on all servers.
	Use(ctx context.Context, prefix []byte) error
	// Retire removes the keys that do not seal from all servers. It fails where another
	// key seals than the one with the prefix.
	Retire(ctx context.Context, prefix []byte) (servers int, err error)
	// Reseal seals a value that is sealed for a context again, with the current key.
	Reseal(sealed, context []byte) ([]byte, error)
}
