package compute

// Key is the record of an API key. It contains only the hash of the key.
type Key struct {
	ID         KeyID   `cbor:"1,keyasint"`
	Lookup     string  `cbor:"2,keyasint"` // The ten characters behind "lk_"; unique.
	Hash       Hash    `cbor:"3,keyasint"` // SHA-256 of the whole key.
	Org        OrgID   `cbor:"4,keyasint"`
	User       UserID  `cbor:"5,keyasint"` // Its creator, on whose behalf it acts.
	Personal   bool    `cbor:"6,keyasint,omitempty"`
	Name       string  `cbor:"7,keyasint"`
	Prefix     string  `cbor:"8,keyasint"` // The first eight characters.
	Active     bool    `cbor:"9,keyasint,omitempty"`
	CreatedAt  Instant `cbor:"10,keyasint"`
	UpdatedAt  Instant `cbor:"11,keyasint"`
	ExpiresAt  Instant `cbor:"12,keyasint,omitempty"` // Zero for never.
	LastUsedAt Instant `cbor:"13,keyasint,omitempty"` // To the minute.
	Scopes     []Scope `cbor:"14,keyasint,omitempty"` // The only rights that it has; none for all rights.
}

// RefreshToken is one link of a refresh token family. The family is revoked
// when a spent token is used again.
type RefreshToken struct {
	Hash      Hash    `cbor:"1,keyasint"` // SHA-256 of the token.
	Family    UUID    `cbor:"2,keyasint"`
	User      UserID  `cbor:"3,keyasint"`
	Spent     bool    `cbor:"4,keyasint,omitempty"`
	Revoked   bool    `cbor:"5,keyasint,omitempty"`
	CreatedAt Instant `cbor:"6,keyasint"`
	ExpiresAt Instant `cbor:"7,keyasint"`
}

// SigningKey is an Ed25519 key that signs access tokens. The private half is
// sealed with the cluster's master key.
type SigningKey struct {
	ID        string  `cbor:"1,keyasint"` // The kid of the tokens.
	Public    []byte  `cbor:"2,keyasint"`
	Sealed    []byte  `cbor:"3,keyasint"`
	CreatedAt Instant `cbor:"4,keyasint"`
	RetiredAt Instant `cbor:"5,keyasint,omitempty"` // From then on it signs nothing.
}

// Context returns the context that the private half is sealed for.
func (k *SigningKey) Context() []byte { return []byte("signing key " + k.ID) }

// JoinToken is the record of a token for joining nodes.
type JoinToken struct {
	ID        string  `cbor:"1,keyasint"` // The ten characters behind "bjt_".
	Hash      Hash    `cbor:"2,keyasint"` // SHA-256 of the secret part.
	Role      Role    `cbor:"3,keyasint,omitempty"`
	Uses      int     `cbor:"4,keyasint"` // Remaining uses.
	ExpiresAt Instant `cbor:"5,keyasint"`
}
