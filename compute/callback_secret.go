package compute

import (
	"strconv"
	"time"
)

// CallbackSecretOverlap is how long the secret before the newest one still signs
// callbacks, so that receivers can be changed one after another.
const CallbackSecretOverlap = 24 * time.Hour

// CallbackSecret signs the callbacks of an organization.
type CallbackSecret struct {
	Number    uint64  `cbor:"1,keyasint"` // 1, 2, 3 in an organization.
	Key       uint64  `cbor:"2,keyasint"` // The data key that seals it.
	Sealed    []byte  `cbor:"3,keyasint"`
	CreatedAt Instant `cbor:"4,keyasint"`
	EndsAt    Instant `cbor:"5,keyasint,omitempty"` // Zero for the newest one.
}

// Context returns the context that the secret of an organization is sealed for.
func (s *CallbackSecret) Context(org OrgID) []byte {
	return []byte("callback secret " + org.String() + " " + strconv.FormatUint(s.Number, 10))
}

// SigningSecrets returns the secrets that sign the callbacks of o at an instant, the
// newest first.
func (o *Org) SigningSecrets(at Instant) []CallbackSecret {
	var out []CallbackSecret
	for i := len(o.Signing) - 1; i >= 0; i-- {
		if s := o.Signing[i]; s.EndsAt.IsZero() || s.EndsAt > at {
			out = append(out, s)
		}
	}
	return out
}
