package command

import (
	"crypto/sha256"

	"berth/compute"
	"berth/fsm/format"
)

// PasswordDigest identifies the password of a user. Guesses cannot be tried on it without the salt.
func PasswordDigest(u *compute.User) compute.Hash { return sha256.Sum256([]byte(u.PasswordHash)) }

type (
	// StoreRefresh records the first refresh token of a login. One with a password is
	// refused if the user has another password by then.
	StoreRefresh struct {
		Op    Op                   `cbor:"1,keyasint"`
		Token compute.RefreshToken `cbor:"2,keyasint"`
		Actor Actor                `cbor:"80,keyasint,omitzero"` // The user that signs in, for the audit record.
		// Password is the PasswordDigest of the user whose password was checked; zero for
		// other logins.
		Password compute.Hash `cbor:"81,keyasint,omitzero"`
	}

	// RotateRefresh spends one refresh token for its successor. A repeat with
	// the same successor within the grace succeeds; any other use of a spent
	// token revokes the family.
	RotateRefresh struct {
		Old  compute.Hash         `cbor:"1,keyasint"`
		Next compute.RefreshToken `cbor:"2,keyasint"` // Family, user and expiry come from the old one.
		Op   Op                   `cbor:"3,keyasint,omitempty"`

		Actor Actor `cbor:"80,keyasint,omitzero"` // The client, for the audit record of a reuse.
	}

	// RevokeRefresh ends the family of a refresh token.
	RevokeRefresh struct {
		Token compute.Hash `cbor:"1,keyasint"`
		Op    Op           `cbor:"2,keyasint,omitempty"`
		Actor Actor        `cbor:"80,keyasint,omitzero"` // The client, for the audit record.
	}

	// AddSigningKey records a key that signs access tokens from now on; the
	// one before it retires.
	AddSigningKey struct {
		Term uint64             `cbor:"1,keyasint"`
		Key  compute.SigningKey `cbor:"2,keyasint"`
	}
)

// tokenRows returns the rows of commands about logins.
func tokenRows() []*row {
	return []*row{
		payload[StoreRefresh]{
			number: 16, since: format.First, onFullDisk: true,
			op: func(c StoreRefresh) Op { return c.Op },
			uses: func(c StoreRefresh) uint64 {
				return max(formatIf(c.Actor != (Actor{}), format.Accounts),
					formatIf(c.Password != (compute.Hash{}), format.Rotation))
			},
		}.row(),
		payload[RotateRefresh]{
			number: 17, since: format.First, onFullDisk: true,
			op:   func(c RotateRefresh) Op { return c.Op },
			uses: func(c RotateRefresh) uint64 { return formatIf(c.Actor != (Actor{}), format.Rotation) },
		}.row(),
		payload[RevokeRefresh]{
			number: 18, since: format.First, onFullDisk: true,
			op:   func(c RevokeRefresh) Op { return c.Op },
			uses: func(c RevokeRefresh) uint64 { return formatIf(c.Actor != (Actor{}), format.Rotation) },
		}.row(),
		payload[AddSigningKey]{
			number: 29, since: format.First,
			term: func(c AddSigningKey) uint64 { return c.Term },
		}.row(),
	}
}
