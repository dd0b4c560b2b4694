package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
)

// Keys returns the API keys of the organization with the slug.
func (c *Client) Keys(ctx context.Context, slug string) ([]wire.Key, error) {
	var out []wire.Key
	err := c.do(ctx, call{method: http.MethodGet, path: keysPath(slug), out: &out})
	return out, err
}

// CreateKey makes an API key for the organization with the slug. The key is in
// this answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, slug, name string) (wire.MintedKey, error) {
	var out wire.MintedKey
	err := c.do(ctx, call{
		method: http.MethodPost, path: keysPath(slug), once: true, out: &out,
		body: map[string]string{"name": name},
	})
	return out, err
}

// ToggleKey makes an active key inactive or the other way round, and returns
// what it is now.
func (c *Client) ToggleKey(ctx context.Context, slug string, id compute.KeyID) (wire.Key, error) {
	var out wire.Key
	path := keysPath(slug) + "/" + id.String() + "/toggle"
	err := c.do(ctx, call{method: http.MethodPatch, path: path, out: &out})
	return out, err
}

// DeleteKey revokes an API key.
func (c *Client) DeleteKey(ctx context.Context, slug string, id compute.KeyID) error {
	return c.do(ctx, call{method: http.MethodDelete, path: keysPath(slug) + "/" + id.String()})
}

func keysPath(slug string) string { return "/orgs/" + url.PathEscape(slug) + "/api-keys" }
