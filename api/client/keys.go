package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"berth/compute"
)

// Key is an organization's API key.
type Key struct {
	ID         compute.KeyID `json:"id"`
	OrgID      compute.OrgID `json:"org_id"`
	Name       string        `json:"name"`
	Prefix     string        `json:"prefix"`
	IsActive   bool          `json:"is_active"`
	CreatedAt  time.Time     `json:"created_at"`
	ExpiresAt  *time.Time    `json:"expires_at"`
	LastUsedAt *time.Time    `json:"last_used_at"`

	// Plaintext is the key itself, in the answer to its creation only.
	Plaintext string `json:"plaintext_key,omitempty"`
}

// Keys returns the API keys of the organization with the slug.
func (c *Client) Keys(ctx context.Context, slug string) ([]Key, error) {
	var out []Key
	err := c.do(ctx, call{method: http.MethodGet, path: keysPath(slug), out: &out})
	return out, err
}

// CreateKey makes an API key for the organization with the slug. The key is in
// this answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, slug, name string) (Key, error) {
	var out Key
	err := c.do(ctx, call{
		method: http.MethodPost, path: keysPath(slug), once: true, out: &out,
		body: map[string]string{"name": name},
	})
	return out, err
}

// DeleteKey revokes an API key.
func (c *Client) DeleteKey(ctx context.Context, slug string, id compute.KeyID) error {
	return c.do(ctx, call{method: http.MethodDelete, path: keysPath(slug) + "/" + id.String()})
}

func keysPath(slug string) string { return "/orgs/" + url.PathEscape(slug) + "/api-keys" }
