package wire

import "berth/compute"

// NewKey is the body of POST /orgs/{slug}/api-keys.
type NewKey struct {
	Name      string          `json:"name" required:"true" minlen:"1" maxlen:"255"`
	ExpiresAt compute.Instant `json:"expires_at" doc:"When the key dies; never when absent."`
}

// Check holds the rules that tags cannot say.
func (k *NewKey) Check(f *Faults) {
	if hasControl(k.Name) {
		f.Value("a name has no control characters", "body", "name")
	}
}

// Key is the record of an organization's API key. Its value is not part of it.
type Key struct {
	ID         compute.KeyID    `json:"id"`
	OrgID      compute.OrgID    `json:"org_id"`
	Name       string           `json:"name"`
	Prefix     string           `json:"prefix" doc:"The first eight characters of its value."`
	IsActive   bool             `json:"is_active"`
	CreatedAt  compute.Instant  `json:"created_at"`
	ExpiresAt  *compute.Instant `json:"expires_at" doc:"Null for never."`
	LastUsedAt *compute.Instant `json:"last_used_at" doc:"To the minute; null before the first use."`
}

// MintedKey is the record of a key with its value, which is shown this once.
type MintedKey struct {
	Key

	PlaintextKey string `json:"plaintext_key" doc:"The value. It is shown this once and kept nowhere."`
}
