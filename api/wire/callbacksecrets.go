package wire

import "berth/compute"

// CallbackSecret is a secret that signs the callbacks of an organization, without its
// value.
type CallbackSecret struct {
	Number    uint64           `json:"number" doc:"1, 2, 3 in the organization."`
	CreatedAt compute.Instant  `json:"created_at"`
	ExpiresAt *compute.Instant `json:"expires_at" doc:"When it signs nothing any more; null for the newest."`
}

// MintedCallbackSecret is a new secret with its value.
type MintedCallbackSecret struct {
	CallbackSecret

	Secret string `json:"secret" doc:"whsec_ and the base64 of 32 bytes. It is shown this once."`
}
