//nolint:lll // A field and its rules are one line.
package wire

import (
	"fmt"
	"slices"

	"berth/compute"
)

// NewKey is the body of POST /orgs/{slug}/api-keys.
type NewKey struct {
	Name      string          `json:"name" required:"true" minlen:"1" maxlen:"255"`
	ExpiresAt compute.Instant `json:"expires_at" doc:"When the key dies; never when absent."`
	Scopes    []string        `json:"scopes" maxitems:"6" doc:"Scopes that the key is restricted to: executions:read, executions:write (which includes to read), billing:read, storage, inference, admin. Everything when absent."`

	MaxCredits compute.Credits `json:"max_credits" gt:"0" doc:"The most that executions submitted with the key may cost together; no limit when absent."`
}

// Check holds the rules that tags cannot say.
func (k *NewKey) Check(f *Faults) {
	checkName(f, k.Name, "body", "name")
	k.Scopes = checkScopes(f, k.Scopes)
}

// checkScopes returns scopes in order, each once.
func checkScopes(f *Faults, scopes []string) []string {
	for i, s := range scopes {
		if !slices.Contains(compute.Scopes(), compute.Scope(s)) {
			f.Value(fmt.Sprintf("there is no scope %.64q: the scopes are %v", s, compute.Scopes()), "body", "scopes", i)
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
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
	Scopes     []string         `json:"scopes" doc:"Scopes that the key is restricted to; empty for everything."`
	MaxCredits *compute.Credits `json:"max_credits" doc:"Its ceiling; null for none."`
}

// MintedKey is the record of a key with its value, which is shown this once.
type MintedKey struct {
	Key

	PlaintextKey string `json:"plaintext_key" doc:"The value. It is shown this once and kept nowhere."`
}

// NewUserKey is the body of POST /auth/api-keys.
type NewUserKey struct {
	Name      string          `json:"key_name" required:"true" minlen:"1" maxlen:"255"`
	ExpiresAt compute.Instant `json:"expires_at" doc:"When the key expires; never when absent."`
	Scopes    []string        `json:"scopes" maxitems:"6" doc:"As of keys of organizations."`

	MaxCredits compute.Credits `json:"max_credits" gt:"0" doc:"As of keys of organizations."`
}

// Check holds the rules that tags cannot say.
func (k *NewUserKey) Check(f *Faults) {
	checkName(f, k.Name, "body", "key_name")
	k.Scopes = checkScopes(f, k.Scopes)
}

// UserKey is the record of a user's own API key. Its value is not part of it.
type UserKey struct {
	ID         compute.KeyID    `json:"id"`
	UserID     compute.UserID   `json:"user_id"`
	Name       string           `json:"key_name"`
	Prefix     string           `json:"key_prefix" doc:"The first eight characters of its value."`
	IsActive   bool             `json:"is_active"`
	CreatedAt  compute.Instant  `json:"created_at"`
	UpdatedAt  compute.Instant  `json:"updated_at"`
	ExpiresAt  *compute.Instant `json:"expires_at" doc:"Null for never."`
	LastUsedAt *compute.Instant `json:"last_used_at" doc:"To the minute; null before the first use."`
	Scopes     []string         `json:"scopes" doc:"Scopes that the key is restricted to; empty for everything."`
	MaxCredits *compute.Credits `json:"max_credits" doc:"Its ceiling; null for none."`
}

// MintedUserKey is the record of a user's own key with its value, which is shown
// this once.
type MintedUserKey struct {
	UserKey

	Value string `json:"api_key" doc:"The value. It is shown this once and kept nowhere."`
}

// KeyToValidate is the body of POST /auth/api-keys/validate.
type KeyToValidate struct {
	Key string `json:"api_key" required:"true" minlen:"1" maxlen:"512" secret:"true"`
}

// ValidatedKey answers POST /auth/api-keys/validate. The rest is null for a key
// that is not valid.
type ValidatedKey struct {
	Valid     bool             `json:"valid"`
	KeyID     *compute.KeyID   `json:"key_id"`
	KeyName   *string          `json:"key_name"`
	UserID    *compute.UserID  `json:"user_id"`
	Email     *string          `json:"email"`
	OrgID     *compute.OrgID   `json:"org_id"`
	OrgSlug   *string          `json:"org_slug"`
	ExpiresAt *compute.Instant `json:"expires_at" doc:"Null for never."`
	Scopes    *[]string        `json:"scopes" doc:"Scopes that the key is restricted to; empty for everything."`
}
