package client

import (
	"context"
	"net/http"
	"net/url"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// Keys returns the API keys of the organization with the slug.
func (c *Client) Keys(ctx context.Context, slug string) ([]wire.Key, error) {
	return pages[wire.Key](ctx, c, keysPath(slug))
}

// CreateKey makes an API key for the organization with the slug. The key is in
// this answer and nowhere else.
func (c *Client) CreateKey(ctx context.Context, slug, name string) (wire.MintedKey, error) {
	return c.CreateKeyUntil(ctx, slug, name, 0)
}

// CreateKeyUntil makes a key as CreateKey does, which expires at an instant unless
// that is zero.
func (c *Client) CreateKeyUntil(
	ctx context.Context, slug, name string, expires compute.Instant, scopes ...compute.Scope,
) (wire.MintedKey, error) {
	return c.CreateKeyWith(ctx, slug, wire.NewKey{Name: name, ExpiresAt: expires, Scopes: compute.ScopeNames(scopes)})
}

// CreateKeyWith makes a key as CreateKey does, with all that a key may have.
func (c *Client) CreateKeyWith(ctx context.Context, slug string, k wire.NewKey) (wire.MintedKey, error) {
	body := keyBody(k.ExpiresAt, k.Scopes, k.MaxCredits)
	body["name"] = k.Name
	var out wire.MintedKey
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: keysPath(slug), Once: true, Out: &out, Body: body})
	return out, err
}

// keyBody returns the body of a new key, without its name.
func keyBody(expires compute.Instant, scopes []string, ceiling compute.Credits) map[string]any {
	body := map[string]any{}
	if !expires.IsZero() {
		body["expires_at"] = expires
	}
	if len(scopes) > 0 {
		body["scopes"] = scopes
	}
	if ceiling > 0 {
		body["max_credits"] = ceiling
	}
	return body
}

// ToggleKey makes an active key inactive or the other way round, and returns
// what it is now.
func (c *Client) ToggleKey(ctx context.Context, slug string, id compute.KeyID) (wire.Key, error) {
	var out wire.Key
	path := keysPath(slug) + "/" + id.String() + "/toggle"
	err := c.Do(ctx, berth.Call{Method: http.MethodPatch, Path: path, Out: &out})
	return out, err
}

// DeleteKey revokes an API key.
func (c *Client) DeleteKey(ctx context.Context, slug string, id compute.KeyID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: keysPath(slug) + "/" + id.String()})
}

func keysPath(slug string) string { return "/orgs/" + url.PathEscape(slug) + "/api-keys" }

// UserKeys returns the caller's own API keys.
func (c *Client) UserKeys(ctx context.Context) ([]wire.UserKey, error) {
	return pages[wire.UserKey](ctx, c, userKeysPath)
}

// CreateUserKey makes an API key of the caller's own, which expires at an instant
// unless that is zero. The key is in this answer and nowhere else.
func (c *Client) CreateUserKey(
	ctx context.Context, name string, expires compute.Instant, scopes ...compute.Scope,
) (wire.MintedUserKey, error) {
	return c.CreateUserKeyWith(ctx, wire.NewUserKey{Name: name, ExpiresAt: expires, Scopes: compute.ScopeNames(scopes)})
}

// CreateUserKeyWith makes a key as CreateUserKey does, with all that a key may have.
func (c *Client) CreateUserKeyWith(ctx context.Context, k wire.NewUserKey) (wire.MintedUserKey, error) {
	body := keyBody(k.ExpiresAt, k.Scopes, k.MaxCredits)
	body["key_name"] = k.Name
	var out wire.MintedUserKey
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: userKeysPath, Once: true, Body: body, Out: &out})
	return out, err
}

// ToggleUserKey makes an active key of the caller's inactive or the other way
// round, and returns the changed key.
func (c *Client) ToggleUserKey(ctx context.Context, id compute.KeyID) (wire.UserKey, error) {
	var out wire.UserKey
	err := c.Do(ctx, berth.Call{Method: http.MethodPatch, Path: userKeysPath + "/" + id.String() + "/toggle", Out: &out})
	return out, err
}

// DeleteUserKey revokes an API key of the caller's.
func (c *Client) DeleteUserKey(ctx context.Context, id compute.KeyID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: userKeysPath + "/" + id.String()})
}

const userKeysPath = "/auth/api-keys"
